"""One daemon for all tests that do it no harm, and a client of its own for each of them."""

import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "client" / "python"), str(Path(__file__).resolve().parent)]

from stream_client import Client  # noqa: E402
from stream_daemon import DaemonProcess  # noqa: E402


@pytest.fixture(scope="session")
def shared_daemon() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess("--memory-limit=64MiB", "--reference-timeout=300ms", "--trace-quota=2MiB")
    yield daemon
    daemon.close()


@pytest.fixture
def new_daemon() -> Iterator[Callable[..., DaemonProcess]]:
    daemons: list[DaemonProcess] = []

    def start(*flags: str) -> DaemonProcess:
        daemons.append(DaemonProcess(*flags))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.close()


@pytest.fixture
def client(shared_daemon: DaemonProcess) -> Iterator[Client]:
    client = Client(shared_daemon.address)
    yield client
    assert shared_daemon.alive(), shared_daemon.log()
    client.close()


@pytest.fixture
def run() -> str:
    """A run that no other test uses."""
    return f"run-{uuid.uuid4().hex[:12]}"
