"""Daemons with TLS and tokens, and channels to them."""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import grpc
from authority import Pair
from stream_daemon import DaemonProcess


class Tokens:
    """A file of tokens, and the tokens themselves."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "tokens"
        self.secrets: dict[str, str] = {}

    def write(self, *names: str, expires: str = "") -> None:
        self.path.write_text("\n".join(self.line(name, expires) for name in names))
        self.path.chmod(0o600)

    def line(self, name: str, expires: str = "") -> str:
        secret = self.secrets.setdefault(name, secrets.token_urlsafe(32))
        return f"{name} {hashlib.sha256(secret.encode()).hexdigest()} {expires}"


def port_of(daemon: DaemonProcess) -> int:
    found = re.search(r"listens on .*?(?:127\.0\.0\.1|\[::1\]):(\d+)", daemon.log())
    assert found, daemon.log()
    return int(found.group(1))


@contextlib.contextmanager
def channel(address: str, ca: Path | None, own: Pair | None = None) -> Iterator[grpc.Channel]:
    root = None if ca is None else ca.read_bytes()
    key, certificate = (own.key.read_bytes(), own.certificate.read_bytes()) if own else (None, None)
    credentials = grpc.ssl_channel_credentials(root, key, certificate)
    with grpc.secure_channel(address, credentials, [("grpc.use_local_subchannel_pool", 1)]) as made:
        yield made


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]
