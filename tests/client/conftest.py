"""Fixtures of the client's tests."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from recording_daemon import RecordingDaemon

from plumbline.daemon import private


@pytest.fixture
def daemon(tmp_path):
    """A daemon that records what it receives and calls every step TYPE_I."""
    daemon = RecordingDaemon(f"unix:{tmp_path}/d.sock")
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture(scope="module")
def server():
    """The address of a real daemon, for a file's tests."""
    with private() as address:
        yield address


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small tensors: more threads only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def built_daemon():
    """Private daemons are those of this checkout's build."""
    if "PLUMBLINED" not in os.environ:
        root = Path(__file__).resolve().parents[2]
        build = Path(os.environ.get("PLUMBLINE_BUILD", root / "build" / "release"))
        os.environ["PLUMBLINED"] = str(build / "server" / "plumblined")
