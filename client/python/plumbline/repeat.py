"""Whether a program that was captured twice began both times with the same content."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from .cuda import Staged
from .storages import BUFFER, DATA, PARAMETER, STATE

_NAMED = {PARAMETER, BUFFER, STATE}

# (name, dtype, elements, digest) of each leaf, and how often there is one such. Data has no name.
Content = Counter[tuple[str, int, int, str]]


def leaf_content(records: list[tuple[Any, ...]]) -> Content:
    """Digests of what a step read and had not computed. Random draws and memory that was never written are left out:
    programs need not agree with themselves on these."""
    payloads = {record[1]: record[2] for record in records if record[0] == "data"}
    found: Content = Counter()
    for record in records:
        if record[0] != "leaf" or record[4] not in (*_NAMED, DATA):
            continue
        _, _, dtype, count, role, name, payload, _ = record
        content = payloads.get(payload, b"")
        if isinstance(content, Staged):
            content = content.on_host()
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        found[(name if role in _NAMED else "", dtype, count, digest)] += 1
    return found


def changed_content(first: Content, again: Content) -> str:
    """What the second run found otherwise than the first; empty: nothing."""
    changed = sorted((first - again) + (again - first))
    if not changed:
        return ""
    named = next((name for name, *_ in changed if name), "")
    if named:
        return f"{named!r}"
    return f"data of {changed[0][2]} elements"
