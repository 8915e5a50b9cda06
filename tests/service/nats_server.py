"""A NATS server of a test's own, with JetStream in a temporary directory, and the little of its protocol that tests
speak: https://docs.nats.io/reference/reference-protocols/nats-protocol."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from plumbline.v1 import verdict_pb2

START_S_MAX = 60.0
STREAM = "PLUMBLINE"
TOKEN = "correct-horse-battery-staple"


def program() -> str:
    found = shutil.which("nats-server") or "/usr/sbin/nats-server"  # Debian's; /usr/sbin is not on every user's path.
    assert Path(found).exists(), "nats-server is missing: deploy/setup --tests"
    return found


class Connection:
    """A client that knows PUB and requests. Nothing of it is encrypted."""

    def __init__(self, host: str, port: int, token: str = "") -> None:
        self._socket = socket.create_connection((host, port), timeout=START_S_MAX)
        self._file = self._socket.makefile("rb")
        assert self._file.readline().startswith(b"INFO ")
        who = {"verbose": False, "headers": True, **({"auth_token": token} if token else {})}
        self._write(f"CONNECT {json.dumps(who)}\r\nSUB inbox 1\r\nPING\r\n".encode())
        assert self._file.readline() == b"PONG\r\n"

    def _write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request(self, subject: str, payload: bytes | dict[str, Any] = b"", headers: str = "") -> dict[str, Any]:
        """The answer of JetStream to a message or to a call of its API."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        if headers:
            head = f"NATS/1.0\r\n{headers}\r\n\r\n".encode()
            self._write(b"HPUB %s inbox %d %d\r\n" % (subject.encode(), len(head), len(head) + len(body)))
            self._write(head + body + b"\r\n")
        else:
            self._write(b"PUB %s inbox %d\r\n%s\r\n" % (subject.encode(), len(body), body))
        while True:
            line = self._file.readline().split()
            assert line, "the server closed the connection"
            if line[0] == b"PING":
                self._write(b"PONG\r\n")
            elif line[0] in (b"MSG", b"HMSG"):
                data = self._file.read(int(line[-1]) + 2)[:-2]
                assert line[0] == b"MSG", data  # A status alone: nobody answers on this subject.
                return json.loads(data)

    def close(self) -> None:
        self._socket.close()


class NatsServer:
    def __init__(self, *configuration: str, scheme: str = "nats", token: str = "", host: str = "127.0.0.1") -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="plumbline-nats.")
        self.directory = Path(self._scratch.name)
        self._configuration = "\n".join(configuration)
        self._scheme, self._token, self._host = scheme, token, host
        self.port = -1  # Any; then the same one again.
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self._host}:{self.port}"

    def start(self) -> None:
        configuration = self.directory / "server.conf"
        configuration.write_text(
            f"host: {self._host}\nport: {self.port}\nports_file_dir: {self.directory}\n"
            f"jetstream {{ store_dir: {self.directory}/store }}\n{self._configuration}\n"
        )
        command = ["setpriv", "--pdeathsig=KILL", program(), "-c", str(configuration)]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_S_MAX
        while True:
            assert self.process.poll() is None and time.monotonic() < deadline, (self.directory / "log").read_text()
            for ports in self.directory.glob("*.ports"):
                text = ports.read_text()
                if not text.endswith("}"):
                    continue  # It is being written.
                self.port = int(json.loads(text)["nats"][0].rpartition(":")[2])
                ports.unlink()
                return

    def crash(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def wipe(self) -> None:
        """Removes what JetStream has on disk; the server must be down."""
        shutil.rmtree(self.directory / "store")

    def freeze(self) -> None:
        """It accepts connections and answers nothing, until thaw()."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def request(self, subject: str, payload: bytes | dict[str, Any] = b"", headers: str = "") -> dict[str, Any]:
        connection = Connection(self._host, self.port, self._token)
        try:
            return connection.request(subject, payload, headers)
        finally:
            connection.close()

    def messages(self) -> list[tuple[str, dict[str, str], bytes]]:
        """What the stream has, in its order: subject, headers and body of each."""
        connection = Connection(self._host, self.port, self._token)
        try:
            info = connection.request(f"$JS.API.STREAM.INFO.{STREAM}")
            if "error" in info:
                return []
            found = []
            for number in range(info["state"]["first_seq"], info["state"]["last_seq"] + 1):
                answer = connection.request(f"$JS.API.STREAM.MSG.GET.{STREAM}", {"seq": number})
                if "error" in answer:
                    continue  # It was removed.
                message = answer["message"]
                lines = base64.b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]
                headers = dict(line.split(": ", 1) for line in lines if ": " in line)
                found.append((message["subject"], headers, base64.b64decode(message.get("data", ""))))
            return found
        finally:
            connection.close()

    def verdicts(self) -> list[verdict_pb2.Verdict]:
        return [
            verdict_pb2.Verdict.FromString(body)
            for _, headers, body in self.messages()
            if headers.get("Plumbline-Message") == "plumbline.v1.Verdict"
        ]

    def steps(self) -> list[str]:
        return [f"{verdict.job}/{verdict.step}" for verdict in self.verdicts()]

    def close(self) -> None:
        try:
            if self.process is not None and self.process.poll() is None:
                self.crash()
        finally:
            self._scratch.cleanup()
