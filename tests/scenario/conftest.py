"""One daemon for all scenarios of a test session."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.extend(str(Path(__file__).resolve().parents[2] / room) for room in ("tests/bench", "deploy/lib"))
import private_daemon


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with private_daemon.running() as running:
        yield running.address
