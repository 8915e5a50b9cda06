"""Daemons that share a history: each has its own first, and neither waits for the server nor loses anything by it."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from observability import get
from postgres_server import PASSWORD, PostgresServer
from query_support import query_stub, send, type_i, type_ii
from stream_client import WAIT_S_MAX, Client
from stream_daemon import DaemonProcess, binary

from plumbline.v1 import query_pb2

NewDaemon = Callable[..., DaemonProcess]
PATIENCE_S = 90.0  # A retry comes after half a minute at most.


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


def sharing(new_daemon: NewDaemon, server: PostgresServer) -> DaemonProcess:
    return new_daemon(f"--store={server.url}", "--metrics-listen=127.0.0.1:0")


def metric(daemon: DaemonProcess, series: str) -> float:
    *_, address = re.findall(r"metrics on ([^;\s]+)", daemon.log())  # Of its last start.
    page = get(f"http://{address}/metrics")
    [value] = re.findall(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    return float(value)


def waits_for(daemon: DaemonProcess, what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"expected {what}:\n{daemon.log()}"


def shipped(daemon: DaemonProcess) -> None:
    waits_for(daemon, "an empty backlog", lambda: metric(daemon, "plumbline_history_backlog_records") == 0)


def stored(server: PostgresServer) -> list[str]:
    return server.rows("SELECT job || '/' || step FROM verdicts ORDER BY sequence")


def steps(daemon: DaemonProcess, job: str, first: int, last: int) -> float:
    """Streams so many steps; the seconds until the last one's answer."""
    client = Client(daemon.address)
    stream = client.stream(job=job)
    begun = time.monotonic()
    send(stream, *(type_ii(step) if step % 3 == 0 else type_i(step) for step in range(first, last)))
    took = time.monotonic() - begun
    client.close()
    return took


def test_two_daemons_ship_to_one_history(new_daemon: NewDaemon, server: PostgresServer) -> None:
    daemons = [sharing(new_daemon, server) for _ in range(2)]
    for number, daemon in enumerate(daemons):
        steps(daemon, f"job{number}", 0, 6)
    for daemon in daemons:
        shipped(daemon)
        assert metric(daemon, "plumbline_history_up") == 1
        assert metric(daemon, "plumbline_history_shipped_total") >= 7
        assert metric(daemon, "plumbline_history_backlog_seconds") == 0
        assert "history_shared" in daemon.log()
    for number in range(2):
        assert [row for row in stored(server) if row.startswith(f"job{number}/")] == [
            f"job{number}/{step}" for step in range(6)
        ]
    assert len(server.rows("SELECT node FROM nodes")) == 2
    assert server.rows("SELECT sum(type_ii) FROM jobs") == ["4"]


def test_a_server_that_is_away_costs_nothing(new_daemon: NewDaemon, server: PostgresServer) -> None:
    server.crash()
    daemon = sharing(new_daemon, server)
    steps(daemon, "job", 0, 4)
    waits_for(daemon, "a line", lambda: "history_lost" in daemon.log())
    assert "reason=unreachable" in daemon.log()
    assert metric(daemon, "plumbline_history_up") == 0
    assert metric(daemon, "plumbline_history_backlog_records") >= 4
    assert metric(daemon, "plumbline_history_backlog_seconds") >= 0
    assert metric(daemon, 'plumbline_history_errors_total{reason="unreachable"}') >= 1
    client = Client(daemon.address)
    asked = query_pb2.ListVerdictsRequest()
    assert len(query_stub(client).ListVerdicts(asked, timeout=WAIT_S_MAX).verdicts) == 4
    client.close()
    daemon.kill()  # Neither that,
    daemon.start()
    server.start()
    shipped(daemon)
    server.crash()  # nor this,
    steps(daemon, "job", 4, 8)
    server.start()
    shipped(daemon)
    daemon.terminate()
    assert daemon.wait() == 0
    daemon.start()  # nor an end loses a step or ships one twice.
    steps(daemon, "job", 8, 9)
    shipped(daemon)
    assert stored(server) == [f"job/{step}" for step in range(9)]


def test_a_server_that_does_not_answer_delays_nothing(new_daemon: NewDaemon, server: PostgresServer) -> None:
    daemon = sharing(new_daemon, server)
    steps(daemon, "job", 0, 2)
    shipped(daemon)
    server.signal_all(signal.SIGSTOP)
    took = steps(daemon, "job", 2, 6)
    assert took < 20, "a statement's limit is 30 s"
    daemon.terminate()
    assert daemon.wait() == 0, daemon.log()
    server.signal_all(signal.SIGCONT)
    daemon.start()
    shipped(daemon)
    assert stored(server) == [f"job/{step}" for step in range(6)]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://plumbline:hunter2@localhost/history", "password"),
        ("postgresql://localhost/history?password=hunter2", "password"),
        ("mysql://localhost/hunter2", "expected postgresql://USER@HOST/DATABASE"),
    ],
)
def test_a_url_with_a_password_is_refused(url: str, said: str) -> None:
    for more in ([], ["--check-config"]):
        ran = subprocess.run([binary(), f"--store={url}", *more], capture_output=True, text=True, check=False)
        assert ran.returncode == 1
        assert ran.stderr.startswith("plumblined: --store: expected ") and said in ran.stderr
        assert "hunter2" not in ran.stderr and ran.stderr.count("\n") == 1


def test_a_wrong_password_is_said_and_the_daemon_goes_on(new_daemon: NewDaemon, server: PostgresServer) -> None:
    server.passfile.write_text("*:*:*:plumbline:hunter2\n")
    daemon = sharing(new_daemon, server)
    steps(daemon, "job", 0, 2)
    waits_for(daemon, "a line", lambda: "history_lost" in daemon.log())
    assert "reason=refused" in daemon.log()
    assert metric(daemon, 'plumbline_history_errors_total{reason="refused"}') >= 1
    assert PASSWORD not in daemon.log() and "hunter2" not in daemon.log()
    server.passfile.write_text(f"*:*:*:plumbline:{PASSWORD}\n")
    shipped(daemon)
    assert stored(server) == ["job/0", "job/1"]
