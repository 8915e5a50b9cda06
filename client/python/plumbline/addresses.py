"""Where a run's daemon may be: one gRPC address, or a list of them that is tried in its order."""

from __future__ import annotations

import re

from .errors import PlumblineError

ADDRESSES_MAX = 16


def addresses(server: str) -> tuple[str, ...]:
    """The addresses of "unix:///a.sock,host:port,dns:///name:port", in order, at least one. PlumblineError: an entry is
    empty or stands there twice, or there are more than ADDRESSES_MAX."""
    entries = tuple(entry.strip() for entry in server.split(","))
    if len(entries) > ADDRESSES_MAX:
        raise PlumblineError(
            f"server: expected at most {ADDRESSES_MAX} addresses, found {len(entries)}; one name that resolves to all"
            " of them, dns:///NAME:PORT, has no such limit"
        )
    seen: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        if not entry:
            raise PlumblineError(f"server: expected an address, found none as entry {number} of {server!r}")
        if (same := _plain(entry)) in seen:
            raise PlumblineError(f"server: expected each address once, found {seen[same]!r} and {entry!r}")
        seen[same] = entry
    return entries


def one_address(server: str, why: str) -> str:
    """The address where a list makes no sense. PlumblineError: there are several, and `why` that is one too many."""
    entries = addresses(server)
    if len(entries) > 1:
        raise PlumblineError(f"server: expected one address, as {why}, found {len(entries)}")
    return entries[0]


def _plain(address: str) -> str:
    """The address without what gRPC takes for granted, so that two spellings of one address are seen to be one."""
    if address.startswith("unix:"):
        return "unix:" + re.sub(r"^//(?=/)", "", address.removeprefix("unix:"))
    return re.sub(r"^dns:(///)?", "", address).lower()
