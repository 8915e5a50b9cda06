"""A daemon of our own on a temporary socket, for as long as a `with` block lasts."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_S_MAX = 20.0


def binary(name: str) -> Path:
    """The built executable: in the directory that PLUMBLINE_BUILD names, or in build/release."""
    build = Path(os.environ.get("PLUMBLINE_BUILD", ROOT / "build" / "release"))
    for path in sorted(build.rglob(name)):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(f"{name} is not built under {build}; run: cmake --build --preset release")


@dataclass(frozen=True)
class Daemon:
    address: str
    pid: int

    def peak_bytes(self) -> int:
        """Peak resident memory so far."""
        return self._status_bytes("VmHWM")

    def resident_bytes(self) -> int:
        return self._status_bytes("VmRSS")

    def products_for(self) -> str:
        """The processor for which its OpenBLAS has kernels, as its log says."""
        log = Path(self.address.removeprefix("unix://")).with_name("log")
        deadline = time.monotonic() + START_S_MAX  # It listens a little earlier than it says so.
        while not (found := re.search(r"products by OpenBLAS for (\w+);", log.read_text())):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no line about products:\n{log.read_text()}")
            time.sleep(0.02)
        return found.group(1)

    def _status_bytes(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise ValueError(f"no {name} in /proc")


def _answers(path: Path) -> bool:
    """Whether somebody listens on the socket: its file is there a little earlier."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@contextlib.contextmanager
def running(*flags: str, cores: set[int] | None = None) -> Iterator[Daemon]:
    """Starts plumblined, pinned to `cores` if given; stops it at the end and fails if it did not drain."""
    with tempfile.TemporaryDirectory(prefix="plumbline.") as scratch:
        path, log = Path(scratch) / "d.sock", Path(scratch) / "log"
        command = [str(binary("plumblined")), f"--listen=unix:{path}", f"--data-dir={scratch}/data", *flags]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
            )
        try:
            deadline = time.monotonic() + START_S_MAX
            while not _answers(path):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the daemon did not start:\n{log.read_text()}")
                time.sleep(0.02)
            yield Daemon(f"unix://{path}", process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                status = process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                status = None
            text = log.read_text()
        if status != 0:
            raise RuntimeError(f"the daemon ended with status {status}:\n{text}")
