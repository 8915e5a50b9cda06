"""Runs that are paired with a run at another daemon, which shares its history."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer
from query_support import query_stub
from stream_client import Client
from stream_daemon import DaemonProcess
from test_golden import Step, accumulated, forgotten, plain, train
from test_shared_history import metric, waits_for

import plumbline
from plumbline.v1 import query_pb2

NewDaemon = Callable[..., DaemonProcess]
# In a process of its own: one captures one step at a time.
TARGET = """
import sys, types
from test_golden import accumulated, train
address, reference, run = sys.argv[1:]
verdicts, errors = train(types.SimpleNamespace(address=address), accumulated, reference=reference, run=run)
print(verdicts[0].verdict if verdicts else errors[0])
"""


def begun(at: DaemonProcess, reference: str, run: str) -> subprocess.Popen[str]:
    """A training that is paired with the reference; its verdict is what it prints."""
    here = Path(__file__).resolve().parent
    path = f"{here}:{here.parents[1] / 'client' / 'python'}"
    command = [sys.executable, "-c", TARGET, at.address, reference, run]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def waits_for_its_reference(at: DaemonProcess) -> None:
    series = 'plumbline_steps_waiting{for="reference"}'
    waits_for(at, "a step that waits", lambda: metric(at, series) == 1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def pair(server: PostgresServer) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    daemons = [
        DaemonProcess(f"--store={server.url}", "--reference-timeout=8s", "--metrics-listen=127.0.0.1:0")
        for _ in range(2)
    ]
    yield daemons[0], daemons[1]
    for daemon in daemons:
        daemon.close()


def reference_at(server: PostgresServer, at: DaemonProcess, run: str, steps: int = 1) -> None:
    before = int(server.rows("SELECT count(*) FROM pair_steps")[0])
    verdicts, errors = train(at, plain, steps, run=run, keep_trace=True)
    assert not errors and not any("other daemons" in note for verdict in verdicts.values() for note in verdict.notes)
    counted = "SELECT count(*) FROM pair_steps"
    waits_for(at, "its steps in the history", lambda: int(server.rows(counted)[0]) == before + steps)


@pytest.mark.parametrize("step", [plain, accumulated, forgotten])
def test_the_verdict_is_that_of_one_daemon(
    server: PostgresServer, pair: tuple[DaemonProcess, DaemonProcess], run: str, step: Step
) -> None:
    reference_at(server, pair[0], run)
    together, apart = (train(daemon, step, reference=run, run=f"{run}-{step.__name__}") for daemon in pair)
    assert not together[1] and not apart[1]
    one, two = together[0][0], apart[0][0]
    assert (two.verdict, two.cause) == (one.verdict, one.cause), two.explain()
    assert two.verdict == ("TYPE_II" if step is forgotten else "TYPE_I"), two.explain()
    assert two.reference == one.reference
    assert any("not at this daemon" in note for note in two.notes)
    assert not any("not at this daemon" in note for note in one.notes)
    assert two.math_resolution >= 0


def test_a_run_waits_for_its_reference_elsewhere(
    server: PostgresServer, pair: tuple[DaemonProcess, DaemonProcess], run: str
) -> None:
    target = begun(pair[1], run, f"{run}-early")
    waits_for_its_reference(pair[1])
    reference_at(server, pair[0], run)
    assert target.communicate(timeout=60)[0] == "TYPE_I\n"


def test_leaves_that_differ_are_told_with_advice(
    server: PostgresServer, pair: tuple[DaemonProcess, DaemonProcess], run: str
) -> None:
    reference_at(server, pair[0], run)
    verdicts, errors = train(pair[1], plain, reference=run, run=f"{run}-other", seed=1)
    assert not errors
    assert (verdicts[0].verdict, verdicts[0].cause) == ("INCONCLUSIVE", "REFERENCE_MISSING"), verdicts[0].explain()
    assert "has other content in the target" in verdicts[0].sentence
    assert any("send both runs to one daemon" in advice for advice in verdicts[0].advice)


def test_a_step_that_the_reference_passed_is_not_waited_for(
    server: PostgresServer, pair: tuple[DaemonProcess, DaemonProcess], run: str
) -> None:
    reference_at(server, pair[0], run)
    verdicts, errors = train(pair[1], plain, 2, reference=run, run=f"{run}-longer")
    assert not errors and verdicts[0].verdict == "TYPE_I"
    assert verdicts[1].verdict == "INCONCLUSIVE" and "the run is at another daemon" in verdicts[1].sentence


def test_what_was_recorded_goes_with_its_job(new_daemon: NewDaemon, run: str) -> None:
    server = PostgresServer()
    try:
        daemon = new_daemon(f"--store={server.url}")
        reference_at(server, daemon, run)
        client = Client(daemon.address)
        query_stub(client).DeleteJob(query_pb2.DeleteJobRequest(job="golden"))
        client.close()
        waits_for(daemon, "that it is gone", lambda: server.rows("SELECT count(*) FROM pair_steps") == ["0"])
    finally:
        server.close()


def test_a_pair_outlives_the_loss_of_the_history(new_daemon: NewDaemon, run: str) -> None:
    server = PostgresServer()
    try:
        flags = (f"--store={server.url}", "--reference-timeout=60s", "--metrics-listen=127.0.0.1:0")
        home, other = new_daemon(*flags), new_daemon(*flags)
        server.crash()
        target = begun(other, run, f"{run}-two")
        waits_for_its_reference(other)
        _, errors = train(home, plain, run=run, keep_trace=True)
        assert not errors
        home.kill()
        home.start()
        server.start()
        assert target.communicate(timeout=90)[0] == "TYPE_I\n"
    finally:
        server.close()


def test_a_run_without_a_reference_anywhere_says_so(pair: tuple[DaemonProcess, DaemonProcess], run: str) -> None:
    verdicts, errors = train(pair[1], plain, reference=f"{run}-nobody", run=run)
    assert not errors and verdicts[0].verdict == "INCONCLUSIVE"
    assert isinstance(verdicts[0], plumbline.Verdict) and "the run never existed here" in verdicts[0].sentence
