"""A PostgreSQL server of a test's own: in a temporary directory, with a unix socket alone and a password."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

START_S_MAX = 60.0
PASSWORD = "correct horse battery staple"


def programs() -> Path:
    """Where Debian's newest server has its programs."""
    return sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))[-1].parent


class PostgresServer:
    def __init__(self, listen: str = "", network: str = "") -> None:
        """`listen`: an address of TCP, too, for those of `network`."""
        self._listen = listen
        self._scratch = tempfile.TemporaryDirectory(prefix="plumbline-postgres.")
        self.directory = Path(self._scratch.name)
        self.process: subprocess.Popen[bytes] | None = None
        self.passfile = self.directory / "passwords"
        self.passfile.write_text(f"*:*:*:plumbline:{PASSWORD}\n")
        self.passfile.chmod(0o600)
        self._owner = ["setpriv", "--pdeathsig=QUIT"]
        if os.geteuid() == 0:  # Which the server refuses to be.
            self._owner += ["--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        home = self.directory / "server"
        home.mkdir()
        (home / "password").write_text(PASSWORD)
        if os.geteuid() == 0:
            self.directory.chmod(0o755)
            for path in (home, home / "password"):
                os.chown(path, 65534, 65534)
        self._run("initdb", "-D", f"{home}/data", "-A", "scram-sha-256", "-U", "plumbline", "-E", "UTF8", "--no-sync",
                  "--locale=C.UTF-8", f"--pwfile={home}/password")  # fmt: skip
        if network:
            with (home / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {network} scram-sha-256\n")
        self.start()

    @property
    def url(self) -> str:
        host = self._listen or f"{self.directory}/server"
        return f"postgresql://plumbline@/postgres?host={host}&passfile={self.passfile}"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([*self._owner, str(programs() / program), *arguments], check=True, capture_output=True)

    def start(self) -> None:
        home = self.directory / "server"
        command = [
            *self._owner,
            str(programs() / "postgres"),
            "-D",
            f"{home}/data",
            "-k",
            str(home),
            "-h",
            self._listen,
        ]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen([*command, "-c", "fsync=off"], stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_S_MAX
        ready = [str(programs() / "pg_isready"), "--quiet", "--host", str(home)]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self.process.poll() is None and time.monotonic() < deadline, (self.directory / "log").read_text()

    def crash(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGQUIT)  # Its processes end at once, and the next start recovers.
        self.process.wait()

    def signal_all(self, sent: signal.Signals) -> None:
        """SIGSTOP: it accepts connections and answers nothing, until SIGCONT."""
        assert self.process is not None
        self.process.send_signal(sent)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            with contextlib.suppress(ProcessLookupError):  # A client's, which may have ended since.
                os.kill(int(child), sent)

    def rows(self, sql: str) -> list[str]:
        environment = {**os.environ, "PGOPTIONS": "-c search_path=plumbline"}
        command = [str(programs() / "psql"), self.url, "--no-align", "--tuples-only", "--quiet", "--command", sql]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout.splitlines()

    def close(self) -> None:
        try:
            if self.process is not None and self.process.poll() is None:
                self.signal_all(signal.SIGCONT)
                self.crash()
        finally:
            self._scratch.cleanup()
