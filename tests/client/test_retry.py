"""Steps that are sent again: the daemon could not store their answers, or ended the stream without fault."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import recording_daemon
import torch
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

import plumbline
from plumbline import transport


def unstored() -> status_pb2.Status:
    status = status_pb2.Status(code=8, message="disk is full")
    status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(nanos=10_000_000)))
    return status


class Trial:
    def __init__(self, folder: Path) -> None:
        self.daemon = recording_daemon.RecordingDaemon(f"unix:{folder}/d.sock", lowered=())
        self.daemon.start()
        self.model = torch.nn.Linear(2, 2)
        self.audit = plumbline.watch(self.model, None, self.daemon.address, job="j", every=1)

    def step(self) -> None:
        with self.audit.step():
            self.model(torch.ones(1, 2)).sum().backward()


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(tmp_path)
    yield trial
    trial.audit.close(0)
    trial.daemon.stop()


def test_a_step_that_was_not_stored_is_sent_again(trial: Trial) -> None:
    trial.daemon.retries = {0: 2, 1: 1}
    trial.daemon.retry_status = unstored()
    for _ in range(3):
        trial.step()
    assert trial.audit.flush(30)
    assert sorted(verdict.step for verdict in trial.audit.verdicts()) == [0, 1, 2]
    assert trial.audit.errors() == {} and trial.audit.missed() == 0
    assert trial.daemon.step_numbers() == [0, 1, 2] and sorted(trial.daemon.resent) == [0, 0, 1]
    assert trial.daemon.violations == []
    for number, again in zip(trial.daemon.resent, trial.daemon.again, strict=True):
        assert again == trial.daemon.steps[number]  # Its trace id too.


def test_a_stream_that_ends_without_fault_costs_no_step(trial: Trial) -> None:
    steps = transport.QUEUED_STEPS_MAX
    trial.daemon.ends = {0, steps - 2, steps - 1}
    for _ in range(steps):
        trial.step()  # Also while another stream is being opened.
    trial.audit.close(30)
    assert trial.daemon.step_numbers() == list(range(steps)) and trial.daemon.resent == []
    assert [verdict.step for verdict in trial.audit.verdicts()] == list(range(steps))
    assert trial.audit.errors() == {} and trial.audit.missed() == 0
    assert len(trial.daemon.requests) == 4 and trial.daemon.violations == []


def test_close_does_not_wait_beyond_its_time_for_another_stream(trial: Trial) -> None:
    trial.daemon.ends = {0}
    trial.step()
    trial.daemon.stop()
    trial.audit.close(0.2)
    assert trial.audit.verdicts() == []


def test_each_step_has_a_trace_id_that_its_error_names(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    trial.step()
    assert trial.audit.flush(30)
    trial.daemon.step_error = "op.name: expected another"
    state = torch.get_rng_state(), random.getstate()
    trial.step()
    assert torch.equal(torch.get_rng_state(), state[0]) and random.getstate() == state[1]
    assert trial.audit.flush(30)
    good, refused = [frames[0].step_begin.trace_id for frames in trial.daemon.steps]
    assert re.fullmatch(r"[0-9a-f]{32}", good) and re.fullmatch(r"[0-9a-f]{32}", refused) and good != refused
    error = trial.audit.errors()[1]
    assert isinstance(error, plumbline.PlumblineError) and error.trace_id == refused
    (line,) = [record.getMessage() for record in caplog.records if "not judged as asked" in record.getMessage()]
    assert line.endswith(f"(trace {refused})")


@pytest.mark.parametrize("given", ["", "0" * 32, "A" * 32, "a" * 31, "a" * 33, "a" * 32 + "\n", b"a" * 32, 7])
def test_a_trace_id_that_is_none_is_told_and_stops_nothing(
    trial: Trial, given: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for trace_id in (given, "a" * 32, None):
        with trial.audit.step(trace_id=trace_id):
            trial.model(torch.ones(1, 2)).sum().backward()
    assert trial.audit.flush(30)
    first, second, third = [frames[0].step_begin.trace_id for frames in trial.daemon.steps]
    assert second == "a" * 32 and len({first, second, third}) == 3
    assert all(re.fullmatch(r"[0-9a-f]{32}", each) for each in (first, third))
    expected = "trace_id: expected 32 lowercase hexadecimal digits that are not all 0, found "
    assert {step: str(error) for step, error in trial.audit.errors().items()} == {0: expected + repr(given)}
    assert sum(expected in record.getMessage() for record in caplog.records) == 1
    assert [verdict.step for verdict in trial.audit.verdicts()] == [0, 1, 2]


def test_while_nothing_is_stored_steps_are_missed_and_counted(trial: Trial) -> None:
    steps = 3 * transport.QUEUED_STEPS_MAX
    trial.daemon.retries = dict.fromkeys(range(steps), 10**9)
    trial.daemon.retry_status = unstored()
    for _ in range(steps):
        trial.step()
        trial.audit.flush(0.05)
    kept = steps - trial.audit.missed()
    assert 0 < kept <= transport.QUEUED_STEPS_MAX
    trial.daemon.retries = {}
    assert trial.audit.flush(30)
    assert len(trial.audit.verdicts()) == kept
    trial.step()
    assert trial.audit.flush(30)
    assert trial.daemon.steps[-1][0].step_begin.missed == steps - kept
    assert trial.audit.missed() == 0 and trial.audit.errors() == {}


def test_what_is_given_up_at_the_end_is_an_error(trial: Trial) -> None:
    trial.daemon.retries = {0: 10**9}
    trial.daemon.retry_status = unstored()
    trial.step()
    assert not trial.audit.flush(0.3)
    trial.audit.close(0)
    assert str(trial.audit.errors()[0]).startswith("disk is full")
