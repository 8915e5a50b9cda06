"""Who a client says that it is, and whom it believes: bearer tokens and TLS."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from .errors import PlumblineError


@dataclasses.dataclass(frozen=True)
class Tls:
    """Files in PEM. ca: the authorities that the daemon's certificate is held against, by default the system's.
    certificate and key: the client's own, where the daemon asks for one."""

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None

    def channel_credentials(self) -> grpc.ChannelCredentials:
        if (self.certificate is None) != (self.key is None):
            raise PlumblineError("tls: expected both certificate and key, or neither, found one")
        return grpc.ssl_channel_credentials(
            *(None if path is None else _read(path, "tls") for path in (self.ca, self.key, self.certificate))
        )


@dataclasses.dataclass(frozen=True)
class Credentials:
    """Files are read for each connection, so that what they hold may change. A token is in no message and no repr."""

    token: str | None = dataclasses.field(default=None, repr=False)
    token_file: str | None = None
    tls: Tls | None = None

    def check(self, address: str) -> None:
        """PlumblineError: a file cannot be read, or a token would be sent for all to see."""
        if self.tls is not None and not _is_unix(address):
            self.tls.channel_credentials()
        if self.metadata() and self.tls is None and not _stays_here(address):
            raise PlumblineError(f"token: expected TLS, or an address on this machine, found {address!r} without TLS")

    def channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
        """A channel to the address, with TLS unless that is a unix socket, where the kernel tells who is there.
        PlumblineError as of check()."""
        self.check(address)
        if self.tls is not None and not _is_unix(address):
            return grpc.secure_channel(address, self.tls.channel_credentials(), options=options)
        return grpc.insecure_channel(address, options=options)

    def metadata(self) -> list[tuple[str, str]]:
        """What goes with each call."""
        token = self.token
        if token is None and self.token_file is not None:
            token = _read(self.token_file, "token").decode(errors="replace").strip()
        if token is None:
            return []
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise PlumblineError("token: expected printable characters of ASCII without spaces, found others")
        return [("authorization", f"Bearer {token}")]


def checked(token: str | None = None, tls: bool | str | os.PathLike[str] | Tls | None = None) -> Credentials:
    """The arguments of watch(); what is None is taken from the environment: PLUMBLINE_TOKEN or PLUMBLINE_TOKEN_FILE;
    PLUMBLINE_TLS (1: the system's authorities), PLUMBLINE_TLS_CA, PLUMBLINE_TLS_CERT and PLUMBLINE_TLS_KEY."""
    given = {name: os.environ.get(f"PLUMBLINE_{name}") or None for name in ("TOKEN", "TOKEN_FILE")}
    file = None
    if token is None:
        token = given["TOKEN"]
        file = given["TOKEN_FILE"] if token is None else None
    if tls is None:
        tls = _tls_of_environment()
    elif tls is True:
        tls = Tls()
    elif tls is False:
        tls = None
    elif not isinstance(tls, Tls):
        tls = Tls(ca=tls)
    return Credentials(token, file, tls)


def _tls_of_environment() -> Tls | None:
    ca, certificate, key = (os.environ.get(f"PLUMBLINE_TLS_{name}") or None for name in ("CA", "CERT", "KEY"))
    wanted = os.environ.get("PLUMBLINE_TLS", "") not in ("", "0")
    return Tls(ca, certificate, key) if wanted or ca or certificate or key else None


def _read(path: str | os.PathLike[str], what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise PlumblineError(f"{what}: cannot read {os.fspath(path)}: {error.strerror}") from None


def _is_unix(address: str) -> bool:
    return address.startswith(("unix:", "unix-abstract:"))


def _stays_here(address: str) -> bool:
    if _is_unix(address):
        return True
    host = address.removeprefix("dns:").strip("/").rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
