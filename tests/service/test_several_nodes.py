"""A job whose ranks stream to several daemons: what its history says where a rank never comes or a daemon is gone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest
from postgres_server import PostgresServer
from query_support import query_stub, run_plumb, send, type_i, type_ii
from stream_client import WAIT_S_MAX, Client, StepFrames, Stream
from stream_daemon import DaemonProcess, binary
from test_shared_history import sharing, waits_for

from plumbline.v1 import query_pb2, verdict_pb2

NewDaemon = Callable[..., DaemonProcess]
WHOLE = "SELECT count(*) FROM verdicts WHERE rank=-1"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


def one_rank(daemon: DaemonProcess, rank: int, *steps: StepFrames, ranks: int = 2) -> list[verdict_pb2.Verdict]:
    """Streams the steps as the only rank of the run that streams there."""
    client = Client(daemon.address)
    job = client.open(rank=rank, ranks=ranks, ranks_here=[rank])
    verdicts = send(Stream(client.channel, job), *steps)
    client.close()
    return verdicts


def whole(daemon: DaemonProcess) -> list[verdict_pb2.Verdict]:
    """The verdicts of all ranks, as a daemon tells them."""
    client = Client(daemon.address)
    asked = query_pb2.ListVerdictsRequest(filter=query_pb2.Filter(rank=-1))
    found = query_stub(client).ListVerdicts(asked, timeout=WAIT_S_MAX).verdicts
    client.close()
    return list(found)


def test_the_verdict_of_all_ranks_is_that_of_the_job(new_daemon: NewDaemon, server: PostgresServer) -> None:
    daemons = [sharing(new_daemon, server) for _ in range(2)]
    for rank, daemon in enumerate(daemons):
        [own, _] = one_rank(daemon, rank, type_i(0), type_ii(1) if rank == 1 else type_i(1))
        assert any("rank -1 in the shared history" in note for note in own.notes)
    for daemon in daemons:
        waits_for(daemon, "two verdicts", lambda: len(whole(daemon)) == 2)  # noqa: B023
        first, second = sorted(whole(daemon), key=lambda verdict: verdict.step)
        assert (first.verdict, first.ranks) == (verdict_pb2.OUTCOME_TYPE_I, 2)
        assert (second.verdict, second.cause) == (verdict_pb2.OUTCOME_TYPE_II, verdict_pb2.CAUSE_EXECUTION)
        assert second.sentence.startswith("Rank 1: ") and second.suspect.source == "train.py:7"
        listed = run_plumb(daemon, "verdicts", "--json", "--all")
        assert listed.returncode == 2, listed.stderr
        ids = [json.loads(line)["id"] for line in listed.stdout.splitlines()]
        assert sorted(ids) == sorted(f"default/job/run/{rank}/{step}" for rank in (-1, 0, 1) for step in range(2))
        assert "default/job/run/-1/1 (all ranks)" in run_plumb(daemon, "verdicts", "--all").stdout
        again = run_plumb(daemon, "replay", "default/job/run/-1/1")
        assert again.returncode != 0 and "a node's own" in again.stderr
        explained = run_plumb(daemon, "explain", "default/job/run/-1/1").stdout
        assert "2, judged together" in explained and "default/job/run/1/1" in explained, explained
        assert run_plumb(daemon, "jobs").returncode == 0


def test_a_rank_that_never_comes_is_named(new_daemon: NewDaemon, server: PostgresServer) -> None:
    daemon = new_daemon(f"--store={server.url}", "--nodes-timeout=1s")
    one_rank(daemon, 0, type_i(0), ranks=3)
    waits_for(daemon, "a verdict", lambda: len(whole(daemon)) == 1)
    [verdict] = whole(daemon)
    assert verdict.verdict == verdict_pb2.OUTCOME_INCONCLUSIVE
    assert "the trace of ranks 1, 2 is missing: nothing came from its daemon within 1s" in verdict.sentence
    assert (list(verdict.ranks_here), verdict.ranks_of_run) == ([0], 3)


def test_another_daemon_judges_where_the_first_was_killed(new_daemon: NewDaemon, server: PostgresServer) -> None:
    first, second = (new_daemon(f"--store={server.url}", "--metrics-listen=127.0.0.1:0") for _ in range(2))
    one_rank(first, 0, type_i(0))
    waits_for(first, "its part", lambda: server.rows("SELECT count(*) FROM node_parts") == ["1"])
    first.kill()
    one_rank(second, 1, type_i(0))
    waits_for(second, "a verdict", lambda: server.rows(WHOLE) == ["1"])
    assert server.rows("SELECT node FROM verdicts WHERE rank=-1") == server.rows(
        "SELECT node FROM verdicts WHERE rank=1"
    )
    first.start()
    waits_for(first, "the verdict", lambda: len(whole(first)) == 1)
    assert whole(first)[0].verdict == verdict_pb2.OUTCOME_TYPE_I
    assert server.rows(WHOLE) == ["1"]


def test_a_timeout_that_is_none_is_refused() -> None:
    checked = subprocess.run(
        [binary(), "--nodes-timeout=0s", "--check-config"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 1
    assert "--nodes-timeout: expected more than 0 and at most a year, found 0" in checked.stderr
