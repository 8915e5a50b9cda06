"""A daemon process of a test's own, on a temporary unix socket; stopped, killed and started again at will."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import grpc

ROOT = Path(__file__).resolve().parents[2]
START_S_MAX = 60.0
STOP_S_MAX = 60.0


def binary() -> Path:
    """plumblined of the build directory that PLUMBLINE_BUILD names, otherwise of build/release."""
    path = Path(os.environ.get("PLUMBLINE_BUILD", ROOT / "build" / "release")) / "server" / "plumblined"
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(f"{path} is not built; run: cmake --build --preset release")
    return path


class DaemonProcess:
    def __init__(self, *flags: str, wrapper: tuple[str, ...] = (), program: Path | None = None) -> None:
        """`wrapper`: what becomes the daemon, such as `ip netns exec NAME`; `program`: in place of this build's."""
        self._scratch = tempfile.TemporaryDirectory(prefix="plumbline.")
        self.directory = Path(self._scratch.name)
        self.address = f"unix:{self.directory}/d.sock"
        self._flags, self._wrapper, self.program = flags, wrapper, program
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self, *more: str) -> None:
        command = [
            *self._wrapper,
            self.program or binary(),
            f"--listen={self.address}",
            f"--data-dir={self.directory}/data",
            *self._flags,
            *more,
        ]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        with grpc.insecure_channel(self.address, options=[("grpc.initial_reconnect_backoff_ms", 50)]) as channel:
            try:
                grpc.channel_ready_future(channel).result(START_S_MAX)
            except grpc.FutureTimeoutError:
                raise RuntimeError(f"the daemon did not start:\n{self.log()}") from None

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(STOP_S_MAX)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def close(self) -> None:
        """Stops it if it runs, and fails unless it ended well."""
        try:
            if self.alive():
                self.terminate()
                status = self.wait()
                assert status == 0, f"the daemon ended with {status}:\n{self.log()}"
        finally:
            if self.alive():
                self.kill()
            self._scratch.cleanup()
