"""Runs that are given several daemons, some of which go away."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import recording_daemon
import torch
from test_shared import bytes_received
from torch import nn

import plumbline
from plumbline import addresses, credentials, daemon, transport
from plumbline.v1 import query_pb2, query_pb2_grpc, verdict_pb2

START_S_MAX = 20.0
ANSWER_S_MAX = 60.0


class Daemon:
    """A real one, with a history of its own, on a unix socket or on a port of loopback that was free."""

    def __init__(self, folder: Path, tcp: bool = False) -> None:
        self.folder, self.tcp = folder, tcp
        self.folder.mkdir()
        self.port = free_port() if tcp else 0
        self.address = f"127.0.0.1:{self.port}" if tcp else f"unix://{folder}/d.sock"
        self.metrics_port = free_port()
        self.start()

    def start(self) -> None:
        (self.folder / "d.sock").unlink(missing_ok=True)
        listen = [f"--listen={self.address}", "--insecure"] if self.tcp else [f"--listen=unix:{self.folder}/d.sock"]
        flags = [f"--data-dir={self.folder}/data", f"--metrics-listen=127.0.0.1:{self.metrics_port}"]
        self.process = subprocess.Popen(
            [daemon.binary(), *listen, *flags, "--reference-timeout=1s"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        awaited(self._answers, START_S_MAX)

    def _answers(self) -> bool:
        assert self.process.poll() is None
        family = socket.AF_INET if self.tcp else socket.AF_UNIX
        with socket.socket(family) as probe:
            return probe.connect_ex(("127.0.0.1", self.port) if self.tcp else f"{self.folder}/d.sock") == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def steps(self) -> list[int]:
        """Those that its history has verdicts on, in order."""
        with credentials.checked().channel(self.address, []) as channel:
            answer = query_pb2_grpc.VerdictServiceStub(channel).ListVerdicts(query_pb2.ListVerdictsRequest())
        return sorted(verdict.step for verdict in answer.verdicts)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def awaited(what: Callable[[], bool], seconds: float = ANSWER_S_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    with contextlib.ExitStack() as stack:

        def start(name: str, tcp: bool = False) -> Daemon:
            started = Daemon(tmp_path / name, tcp)
            stack.callback(started.kill)
            return started

        yield start


class Training:
    def __init__(self, server: str, **options: object) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.audit = plumbline.watch(self.model, self.optimizer, server, **{"job": "several", "every": 1, **options})

    def step(self) -> None:
        with self.audit.step():
            self.model(torch.randn(8, 128)).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def steps_until(self, count: int, seconds: float = ANSWER_S_MAX) -> list[int]:
        """Trains until there are so many verdicts; their steps."""

        def there() -> bool:
            self.step()
            self.audit.flush(10)
            return len(self.audit.verdicts()) >= count

        awaited(there, seconds)
        return [verdict.step for verdict in self.audit.verdicts()]


@pytest.mark.parametrize("tcp", [False, True])
def test_a_run_goes_on_at_the_next_daemon(
    daemons: Callable[..., Daemon], caplog: pytest.LogCaptureFixture, tcp: bool
) -> None:
    first, second = daemons("first"), daemons("second", tcp)
    training = Training(f"{first.address},{second.address}")
    assert training.steps_until(2) == [0, 1]
    first.kill()
    steps = training.steps_until(5)
    training.audit.close()
    assert len(set(steps)) == len(steps) and steps == sorted(steps)
    assert all(verdict.verdict == "TYPE_I" for verdict in training.audit.verdicts())
    assert training.audit.errors() == {}
    # What has no verdict was counted, and the daemon that goes on was told.
    assert second.steps() == steps[2:]
    page = metrics(second)
    dropped = sum(float(value) for value in re.findall(r"^plumbline_dropped_steps_total\{[^}]*\} (\S+)$", page, re.M))
    assert dropped == steps[-1] + 1 - len(steps)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith(f"plumbline: the run goes on at {second.address}, which has none of its steps;")
    assert first.address in line and "up to step 1," in line
    # Shared memory is made known to the second daemon anew, where that can read it.
    received = bytes_received(second.metrics_port)
    assert (received["shared_memory"] > 0) == (not tcp)


def metrics(one: Daemon) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{one.metrics_port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_a_run_that_comes_back_goes_on_where_it_was(
    daemons: Callable[..., Daemon], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = daemons("first"), daemons("second")
    training = Training(f"{first.address},{second.address}")
    training.steps_until(2)
    first.kill()
    training.steps_until(4)
    first.start()
    second.kill()
    steps = training.steps_until(6)
    training.audit.close()
    assert first.steps()[:2] == [0, 1] and set(first.steps()) | set(steps[2:4]) == set(steps)
    lines = [record.getMessage() for record in caplog.records if "the run goes on at" in record.getMessage()]
    assert len(lines) == 2 and "which has the steps up to 1;" in lines[1]


def test_the_first_that_answers_is_taken(daemons: Callable[..., Daemon], tmp_path: Path) -> None:
    one = daemons("one")
    started = time.monotonic()
    training = Training(f"unix://{tmp_path}/nobody.sock, 127.0.0.1:{free_port()}, {one.address}")
    assert training.steps_until(1) == [0]  # Taken before the first step, so that none was missed.
    assert time.monotonic() - started < ANSWER_S_MAX and training.audit.errors() == {}
    training.audit.close()


def test_a_name_is_resolved(daemons: Callable[..., Daemon]) -> None:
    one = daemons("one", tcp=True)
    training = Training(f"dns:///localhost:{one.port}", token=None)
    assert training.steps_until(1) == [0]
    training.audit.close()


def test_where_none_answers_training_goes_on_and_the_steps_are_counted(
    daemons: Callable[..., Daemon], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = daemons("first"), daemons("second")
    training = Training(f"{first.address},{second.address}")
    training.steps_until(1)
    first.kill()
    second.kill()

    def missed() -> bool:
        training.step()
        return training.audit.missed() >= 3

    awaited(missed)
    assert training.audit.missed_reason == "disconnected"
    awaited(lambda: "no daemon takes the run" in caplog.text)
    (line,) = [text for text in caplog.messages if "no daemon takes the run" in text]
    assert first.address in line and second.address in line
    second.start()
    before = len(training.audit.verdicts())
    steps = training.steps_until(before + 1)
    assert len(set(steps)) == len(steps)
    training.audit.close()


def test_a_run_whose_reference_is_elsewhere_says_so(daemons: Callable[..., Daemon]) -> None:
    first, second = daemons("first"), daemons("second")
    reference = Training(first.address, run="reference", keep_trace=True)
    reference.steps_until(3)
    target = Training(f"{first.address},{second.address}", run="target", reference="reference")
    assert target.steps_until(1) == [0]
    first.kill()
    reference.audit.close(0)
    steps = target.steps_until(2)
    assert steps[-1] in second.steps()
    alone = target.audit.verdicts()[-1]
    assert alone.verdict == "INCONCLUSIVE", alone.explain()
    assert "reference" in alone.explain()
    target.audit.close()


def test_a_step_under_which_daemons_end_is_given_up(tmp_path: Path) -> None:
    """It may be what ends them: the third is spared."""
    ended = threading.Event()

    def outcome(step: int) -> int:
        if step == 1:  # Received, and never answered.
            ended.wait(ANSWER_S_MAX)
        return verdict_pb2.OUTCOME_TYPE_I

    fakes = [recording_daemon.RecordingDaemon(f"unix:{tmp_path}/{name}.sock", lowered=()) for name in "abc"]
    for fake in fakes:
        fake.outcome = outcome
        fake.start()
    model = nn.Linear(2, 2)
    audit = plumbline.watch(model, None, ",".join(fake.address for fake in fakes), job="j", every=1)

    def step() -> None:
        with audit.step():
            model(torch.ones(1, 2)).sum().backward()

    step()
    assert audit.flush(ANSWER_S_MAX)
    step()
    for fake in fakes[:2]:
        awaited(lambda fake=fake: 1 in fake.step_numbers())
        fake.stop()
    assert audit.flush(ANSWER_S_MAX)
    assert list(audit.errors()) == [1] and "went away while they had it" in str(audit.errors()[1])
    step()
    assert audit.flush(ANSWER_S_MAX)
    assert fakes[2].step_numbers() == [2]
    assert list(fakes[2].steps[0][0].step_begin.missed_reasons) == ["disconnected"]
    ended.set()
    audit.close(0)
    fakes[2].stop()


def test_a_daemon_that_freezes_is_left(daemons: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose machine is gone: it ends no connection."""
    monkeypatch.setattr(transport, "KEEPALIVE_MS", 500)
    monkeypatch.setattr(transport, "KEEPALIVE_TIMEOUT_MS", 500)
    monkeypatch.setattr(transport, "OPEN_TIMEOUT_S", 1.0)
    first, second = daemons("first", tcp=True), daemons("second")
    training = Training(f"{first.address},{second.address}")
    assert training.steps_until(1) == [0]
    first.process.send_signal(signal.SIGSTOP)
    steps = training.steps_until(2, 5 * ANSWER_S_MAX)  # On a busy machine gRPC's pings were seen to take a minute.
    training.audit.close()  # Which awaits what is under way: a step after these may be stored already.
    assert second.steps()[: len(steps) - 1] == steps[1:]


def test_what_is_no_list_of_addresses_is_refused() -> None:
    model = nn.Linear(1, 1)
    for server, text in (
        ("unix:///a.sock,,host:1", "server: expected an address, found none as entry 2 of 'unix:///a.sock,,host:1'"),
        (",", "found none as entry 1"),
        ("unix:///a.sock,unix:/a.sock", "expected each address once, found 'unix:///a.sock' and 'unix:/a.sock'"),
        ("dns:///Host:1,host:1", "expected each address once"),
        (",".join(f"host{i}:1" for i in range(100)), "expected at most 16 addresses, found 100; .*dns:///NAME:PORT"),
    ):
        with pytest.raises(plumbline.PlumblineError, match=text):
            plumbline.watch(model, None, server, job="j")
    with pytest.raises(plumbline.PlumblineError, match=r"token: expected TLS, .*found 'far.example:1' without TLS"):
        plumbline.watch(model, None, "unix:///a.sock,far.example:1", job="j", token="secret")
    with pytest.raises(plumbline.PlumblineError, match=r"server: expected one address, .* found 2"):
        plumbline.compare(lambda: {"y": torch.ones(1)}, lambda: {"y": torch.ones(1)}, "unix:///a.sock,unix:///b.sock")


def test_one_address_is_a_list_of_one() -> None:
    assert addresses.addresses("unix:/a") == ("unix:/a",)
    assert addresses.addresses(" h:1 , dns:///name:2") == ("h:1", "dns:///name:2")
