"""What a machine does to its daemon: its clock jumps, its disk vanishes, connections do not come on."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import durability
import grpc
import pytest
from attacks import hogs
from attacks.honest import Honest
from authority import Authority
from observability import get
from query_support import metrics_address, query_stub, send, type_i
from secure import Tokens, port_of
from stream_client import Client, StepFrames
from stream_daemon import DaemonProcess

from plumbline.v1 import query_pb2

YEARS_S = 10 * 365 * 86400


class Clock:
    """The wall clock of the daemons that are started while it is there."""

    def __init__(self, folder: Path) -> None:
        file = folder / "clock"
        file.write_bytes(bytes(8))
        library = folder / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source], check=True)
        self.environment = {"LD_PRELOAD": str(library), "TEST_CLOCK": str(file)}
        self._file = file.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), 8)

    def jump(self, seconds: int) -> None:
        """To so many seconds after the machine's clock."""
        self._map[:] = struct.pack("q", seconds)

    def close(self) -> None:
        self._map.close()
        self._file.close()


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[Clock]:
    clock = Clock(tmp_path)
    yield clock
    clock.close()


@pytest.fixture
def timed(
    clock: Clock, new_daemon: Callable[..., DaemonProcess], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., DaemonProcess]:
    """Starts a daemon that goes by `clock`."""

    def start(*flags: str) -> DaemonProcess:
        with monkeypatch.context() as environment:
            for name, value in clock.environment.items():
                environment.setenv(name, value)
            return new_daemon(*flags)

    return start


def test_a_clock_that_jumps_ends_no_step_and_hides_none(clock: Clock, timed: Callable[..., DaemonProcess]) -> None:
    daemon = timed("--step-timeout=60s", "--reference-timeout=60s", "--audit-timeout=60s")
    client = Client(daemon.address)
    stream = client.stream("run", "slow")
    with Honest(daemon.address) as honest:
        for step, seconds in enumerate((YEARS_S, -YEARS_S, 0)):
            first, *rest = StepFrames(step).frames()
            stream.send(first)  # The step is open.
            honest.wait(3)
            clock.jump(seconds)
            honest.wait(3)
            stream.send(*rest)
            verdict = stream.next("verdict")
            assert abs(verdict.time.seconds - time.time() - seconds) < 60, "the clock has jumped"
            another = Client(daemon.address)
            send(another.stream(f"run-{step}", "new"), type_i(0))
            another.close()
    listed = query_stub(client).ListVerdicts(query_pb2.ListVerdictsRequest(filter=query_pb2.Filter(job="slow")))
    assert [verdict.step for verdict in listed.verdicts] == [0, 1, 2]
    client.close()


def test_a_clock_that_jumps_back_does_not_lengthen_the_drain(clock: Clock, timed: Callable[..., DaemonProcess]) -> None:
    daemon = timed("--memory-limit=1GiB", "--drain-timeout=2s")
    client = Client(daemon.address)
    stream = client.stream("run", "hostile")
    stream.send(*hogs.products(0, 100))
    stream.received()
    start = time.monotonic()
    daemon.terminate()
    while "draining for at most" not in daemon.log():
        assert time.monotonic() - start < 30
        os.sched_yield()
    clock.jump(-YEARS_S)
    assert daemon.wait() == 1
    assert time.monotonic() - start < 2 + 1 + 3  # Its grace, and a busy machine's.
    client.close()


def test_connections_that_do_not_come_on_are_closed(
    clock: Clock, timed: Callable[..., DaemonProcess], tmp_path: Path
) -> None:
    pair = Authority(tmp_path).signs("daemon")
    tokens = Tokens(tmp_path)
    tokens.write("alpha")
    tls = [f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}", f"--token-file={tokens.path}"]
    daemon = timed("--listen=127.0.0.1:0", *tls)
    hello = client_hello()
    slow = socket.socket(socket.AF_UNIX)
    slow.connect(daemon.address.removeprefix("unix:"))
    part, whole = (socket.create_connection(("127.0.0.1", port_of(daemon))) for _ in range(2))
    part.sendall(hello[: len(hello) // 2])
    whole.sendall(hello)
    with Honest(daemon.address) as honest:
        clock.jump(-YEARS_S)
        # A byte a second of what HTTP/2 begins with: it would be whole after 24 seconds.
        assert seconds_until_closed(slow, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") < 15
        assert seconds_until_closed(part) < 15 and seconds_until_closed(whole) < 15
        honest.wait(3)
    for each in (slow, part, whole):
        each.close()


def client_hello() -> bytes:
    """What a TLS client says first."""
    out = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def seconds_until_closed(connection: socket.socket, trickle: bytes = b"") -> float:
    """Sends a byte of `trickle` a second meanwhile."""
    start = time.monotonic()
    connection.settimeout(1)
    while time.monotonic() - start < 60:
        try:
            if trickle:
                connection.sendall(trickle[:1])
                trickle = trickle[1:]
            if connection.recv(4096) == b"":
                break
        except TimeoutError:
            continue
        except (BrokenPipeError, ConnectionResetError):
            break
    return time.monotonic() - start


def test_a_data_directory_that_is_removed_acknowledges_nothing(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon("--metrics-listen=127.0.0.1:0")
    client = Client(daemon.address)
    send(client.stream("before"), type_i(0))
    opened = client.stream("gone")
    shutil.rmtree(daemon.directory / "data")
    opened.send(*type_i(0).frames())
    assert "was removed, moved or unmounted" in opened.next("error").status.message
    opened.call.cancel()
    client.close()
    daemon.kill()
    daemon.start()
    client = Client(daemon.address)
    assert client.open("gone").last_durable_step == -1
    send(client.stream("gone"), type_i(0))
    client.close()
    daemon.kill()
    daemon.start()
    client = Client(daemon.address)
    assert client.open("gone").last_durable_step == 0
    client.close()


def test_a_disk_that_is_unmounted_acknowledges_nothing(new_daemon: Callable[..., DaemonProcess]) -> None:
    try:
        with durability.small_disk() as disk:
            daemon = new_daemon(f"--data-dir={disk}/data", "--disk-reserve=0", "--metrics-listen=127.0.0.1:0")
            client = Client(daemon.address)
            opened = client.stream("gone")
            send(opened, type_i(0))
            subprocess.run(["umount", "--lazy", disk], check=True)
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], check=True)  # Another one is there now.
            opened.send(*type_i(1).frames())
            error = opened.next("error")
            assert error.step == 1 and "was removed, moved or unmounted" in error.status.message
            assert [detail.type_url.rsplit(".", 1)[1] for detail in error.status.details] == ["RetryInfo"]
            with pytest.raises(urllib.error.HTTPError) as unready:
                get(f"http://{metrics_address(daemon)}/readyz")
            assert unready.value.code == 503 and b"store: " in unready.value.read()
            with pytest.raises(grpc.RpcError) as unopened:
                client.open("another")
            assert unopened.value.code() == grpc.StatusCode.UNAVAILABLE
            client.close()
            daemon.kill()
    except PermissionError as error:
        pytest.fail(f"a small file system cannot be mounted here, which this test needs: {error}")
