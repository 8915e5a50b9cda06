"""A private daemon for as long as a `with` block lasts."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

from .errors import PlumblineError

START_S_MAX = 20.0
STOP_S_MAX = 10.0


def binary() -> str:
    """Path of plumblined: $PLUMBLINED, then PATH, then the wheel plumbline-daemon, then the build of the checkout that
    this package lies in."""
    named = os.environ.get("PLUMBLINED")
    if named:
        if not os.access(named, os.X_OK):
            raise PlumblineError(f"PLUMBLINED: expected an executable, found {named!r}")
        return named
    found = shutil.which("plumblined")
    if found:
        return found
    if importlib.util.find_spec("plumbline_daemon") is not None:
        return str(importlib.import_module("plumbline_daemon").program("plumblined"))
    for parent in pathlib.Path(__file__).resolve().parents:
        for build in ("release", "debug"):
            candidate = parent / "build" / build / "server" / "plumblined"
            if os.access(candidate, os.X_OK):
                return str(candidate)
    raise PlumblineError(
        "plumblined not found: give server=, set PLUMBLINED, put it on PATH, or pip install plumbline[daemon]"
    )


def _answers(path: pathlib.Path) -> bool:
    """Whether somebody listens on the socket: its file is there a little earlier."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@contextlib.contextmanager
def private(*flags: str) -> Iterator[str]:
    """Starts a daemon on a temporary socket and data directory; yields its address. Both are removed at the end."""
    program = binary()
    with tempfile.TemporaryDirectory(prefix="plumbline.") as scratch:
        path, output = pathlib.Path(scratch) / "d.sock", pathlib.Path(scratch) / "log"
        command = [program, f"--listen=unix:{path}", f"--data-dir={scratch}/data"]
        with output.open("wb") as log:
            process = subprocess.Popen([*command, *flags], stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + START_S_MAX
            while not _answers(path):
                if process.poll() is not None or time.monotonic() > deadline:
                    text = output.read_text(errors="replace")[-2000:]
                    raise PlumblineError(f"the private daemon {program} did not start:\n{text}")
                time.sleep(0.01)
            yield f"unix:{path}"
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
