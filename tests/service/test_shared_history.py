"""Daemons that share a history: each has its own first, and neither waits for the server nor loses anything by it."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from observability import get
from postgres_server import PASSWORD, PostgresServer
from query_support import query_stub, run_plumb, send, type_i, type_ii
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


def jobs_told(daemon: DaemonProcess) -> tuple[list[str], query_pb2.History]:
    """The steps that a daemon lists, three a page, and which histories it says they are from."""
    client = Client(daemon.address)
    found, token = [], ""
    while True:
        asked = query_pb2.ListVerdictsRequest(page_size=3, page_token=token)
        page = query_stub(client).ListVerdicts(asked, timeout=WAIT_S_MAX)
        found += [f"{verdict.job}/{verdict.step}" for verdict in page.verdicts]
        token = page.next_page_token
        if not token:
            client.close()
            return sorted(found), page.history


def test_each_daemon_answers_for_all(new_daemon: NewDaemon, server: PostgresServer) -> None:
    daemons = [sharing(new_daemon, server) for _ in range(2)]
    clients = [Client(daemon.address) for daemon in daemons]
    stub = query_stub(clients[1])
    waits_for(daemons[1], "a history", lambda: metric(daemons[1], "plumbline_history_up") == 1)
    watch = stub.WatchVerdicts(query_pb2.WatchVerdictsRequest(), timeout=WAIT_S_MAX)
    assert ("plumbline-history", "fleet") in watch.initial_metadata()
    for number, daemon in enumerate(daemons):
        steps(daemon, f"job{number}", 0, 4)
    everything = sorted(f"job{number}/{step}" for number in range(2) for step in range(4))
    for daemon in daemons:
        shipped(daemon)
    told = [next(watch) for _ in everything]
    assert sorted(f"{verdict.job}/{verdict.step}" for verdict in told) == everything
    assert len({verdict.node for verdict in told}) == 2
    watch.cancel()

    nodes = []
    for daemon in daemons:
        found, history = jobs_told(daemon)
        assert found == everything
        assert history.scope == query_pb2.History.SCOPE_FLEET and not history.reason
        nodes.append(history.node)
    jobs = stub.ListJobs(query_pb2.ListJobsRequest(), timeout=WAIT_S_MAX)
    assert [(job.job, job.steps) for job in jobs.jobs] == [("job0", 4), ("job1", 4)]
    [run] = stub.ListRuns(query_pb2.ListRunsRequest(job="job0"), timeout=WAIT_S_MAX).runs
    assert run.node == nodes[0]
    stats = stub.GetStats(query_pb2.GetStatsRequest(), timeout=WAIT_S_MAX)
    assert stats.verdicts == 8 and stats.history.scope == query_pb2.History.SCOPE_FLEET
    theirs = next(verdict for verdict in told if verdict.job == "job0")
    whole = stub.GetVerdict(query_pb2.GetVerdictRequest(id=theirs.id), timeout=WAIT_S_MAX)
    assert whole.node == nodes[0] and whole.taps
    assert nodes[0] in run_plumb(daemons[1], "explain", theirs.id).stdout
    assert "is away" not in run_plumb(daemons[1], "jobs").stdout

    server.crash()
    found, history = jobs_told(daemons[1])
    assert found == [f"job1/{step}" for step in range(4)]
    assert history.scope == query_pb2.History.SCOPE_OWN and history.reason
    assert stub.GetServerInfo(query_pb2.GetServerInfoRequest(), timeout=WAIT_S_MAX).history == history
    printed = run_plumb(daemons[1], "jobs").stdout
    assert "job0" not in printed and "From the history of this daemon alone" in printed
    with pytest.raises(grpc.RpcError) as away:
        stub.GetVerdict(query_pb2.GetVerdictRequest(id=theirs.id), timeout=WAIT_S_MAX)
    assert away.value.code() == grpc.StatusCode.NOT_FOUND and "is away" in away.value.details()
    server.start()
    waits_for(daemons[1], "the shared history", lambda: jobs_told(daemons[1])[0] == everything)
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--store-users=all", "expected node or fleet"),
        ("--store-retention=golden=5", "expected verdicts, errors or runs"),
        ("--store-retention=verdicts", "--store-retention"),
    ],
)
def test_what_the_shared_history_cannot_do_is_said(flag: str, said: str) -> None:
    ran = subprocess.run([binary(), flag, "--check-config"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert said in ran.stderr and ran.stderr.count("\n") == 1
