"""Watching a run: what arrives at the daemon, what comes back, and that training goes on whatever happens."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import torch
from recording_daemon import RecordingDaemon
from torch import nn

import plumbline
from plumbline import transport
from plumbline.v1 import trace_pb2, verdict_pb2


class Job:
    def __init__(self, address: str, **options: object) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.audit = plumbline.watch(self.model, self.optimizer, address, job="job", **{"every": 1, **options})

    def step(self) -> None:
        with self.audit.step():
            self.model(torch.randn(4, 8)).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def judged(self, daemon: RecordingDaemon, count: int = 1) -> None:
        """Steps until `count` more steps have arrived."""
        goal, deadline = len(daemon.steps) + count, time.monotonic() + 30
        while len(daemon.steps) < goal:
            assert time.monotonic() < deadline
            self.step()
            self.audit.flush(5)


def taps(frames: list) -> dict[str, trace_pb2.Tap]:
    return {frame.tap.name: frame.tap for frame in frames if frame.WhichOneof("frame") == "tap"}


def test_steps_verdicts_and_identity(daemon: RecordingDaemon) -> None:
    heard = []
    job = Job(daemon.address, every=3, run="run-1", project="p", profile="ieee", reference="other/run")
    job.audit.on_verdict(heard.append)
    for _ in range(7):
        job.step()
        assert job.audit.flush(10)
    assert daemon.step_numbers() == [0, 3, 6]
    assert [verdict.step for verdict in job.audit.verdicts()] == [verdict.step for verdict in heard] == [0, 3, 6]
    request = daemon.requests[0]
    assert (request.identity.project, request.identity.job, request.identity.run) == ("p", "job", "run-1")
    assert (request.profile, request.reference_run, request.reference) == ("ieee", "other/run", False)
    assert request.framework.startswith("torch ")
    assert {"loss", "grad:0.weight", "update:2.bias", "state:0.bias.exp_avg"} <= set(taps(daemon.steps[1]))
    leaves = {frame.leaf.name: frame.leaf for frame in daemon.steps[1] if frame.WhichOneof("frame") == "leaf"}
    assert leaves["param:0.weight"].role == trace_pb2.Leaf.PARAMETER
    assert leaves["state:0.weight.exp_avg"].role == trace_pb2.Leaf.STATE
    sites = {(f.op.module, f.op.phase) for f in daemon.steps[1] if f.WhichOneof("frame") == "op"}
    assert {("0", trace_pb2.PHASE_FORWARD), ("0", trace_pb2.PHASE_BACKWARD), ("2", trace_pb2.PHASE_BACKWARD)} <= sites
    sources = {f.op.source.split(":")[0] for f in daemon.steps[1] if f.WhichOneof("frame") == "op"}
    assert sources == {"test_watch.py"}
    job.audit.close()


def test_user_taps_and_references(daemon: RecordingDaemon) -> None:
    job = Job(daemon.address)
    with job.audit.step():
        assert job.audit.sampled
        y = job.model(torch.randn(4, 8))
        job.audit.tap("y", y)
        y.square().mean().backward()
        job.audit.reference({"y": y.detach().double(), "loss": 0.25})
    assert not job.audit.sampled
    assert job.audit.flush(10)
    found = taps(daemon.steps[0])
    assert found["y"].kind == trace_pb2.Tap.VALUE
    assert found["y"].reference_dtype == trace_pb2.DTYPE_FLOAT64
    assert found["loss"].reference_dtype == trace_pb2.DTYPE_FLOAT32
    job.audit.tap("ignored", torch.ones(1))  # Outside of a step.
    with job.audit.step():
        job.audit.reference({"nothing": torch.ones(1)})
    assert job.audit.missed() == 1
    job.judged(daemon)
    begin = daemon.steps[-1][0].step_begin
    assert (begin.missed, list(begin.missed_reasons)) == (1, ["unknown_tap"])
    job.audit.close()


def test_type_ii_raises_at_a_later_step(daemon: RecordingDaemon) -> None:
    daemon.outcome = lambda step: verdict_pb2.OUTCOME_TYPE_II if step == 1 else verdict_pb2.OUTCOME_TYPE_I
    job = Job(daemon.address, on_type_ii="raise")
    for _ in range(2):
        job.step()
        assert job.audit.flush(10)
    with pytest.raises(plumbline.TypeIIError, match="step 1"):
        job.step()
    job.step()
    job.audit.close()


def test_nothing_is_called_on_steps_that_are_not_sampled(daemon: RecordingDaemon) -> None:
    job = Job(daemon.address, every=1000)
    job.step()
    first, second = job.audit.step(), job.audit.step()
    assert first is second
    call, run = nn.Module.__call__, torch.autograd._engine_run_backward
    job.step()
    assert (nn.Module.__call__, torch.autograd._engine_run_backward) == (call, run)
    assert not job.optimizer._optimizer_step_pre_hooks
    job.audit.close()


def test_everything_is_put_back_after_a_sampled_step(daemon: RecordingDaemon) -> None:
    call, run, scale = nn.Module.__call__, torch.autograd._engine_run_backward, torch.amp.GradScaler.scale
    job = Job(daemon.address)
    job.step()
    with pytest.raises(ZeroDivisionError), job.audit.step():
        job.model(torch.randn(4, 8)).sum().backward()
        raise ZeroDivisionError
    assert (nn.Module.__call__, torch.autograd._engine_run_backward) == (call, run)
    assert torch.amp.GradScaler.scale is scale
    assert not job.optimizer._optimizer_step_pre_hooks
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    job.judged(daemon)
    assert list(daemon.steps[-1][0].step_begin.missed_reasons) == ["exception"]
    job.audit.close()


def test_daemon_killed_amid_training(daemon: RecordingDaemon) -> None:
    job = Job(daemon.address)
    job.judged(daemon, 2)
    daemon.stop()
    deadline = time.monotonic() + 20
    while job.audit.missed() < 3:
        assert time.monotonic() < deadline
        job.step()
        time.sleep(0.01)
    daemon.start()
    # Those that were under way when the daemon died come first; the gap is told by the next.
    while sum(step[0].step_begin.missed for step in daemon.steps) < 3:
        job.judged(daemon)
    reasons = {reason for step in daemon.steps for reason in step[0].step_begin.missed_reasons}
    assert "disconnected" in reasons
    assert sorted(set(daemon.step_numbers())) == sorted(daemon.step_numbers())
    assert daemon.violations == []
    job.audit.close()


def test_open_step_is_sent_again(daemon: RecordingDaemon) -> None:
    """The stream breaks amid a step that is larger than the first credit."""
    daemon.grant.clear()
    job = Job(daemon.address)
    job.model.append(nn.Linear(1, 1 << 21))
    with job.audit.step():
        job.audit.tap("wide", job.model(torch.ones(1, 8)))
    time.sleep(0.5)
    assert daemon.steps == []
    daemon.stop()
    daemon.grant.set()
    daemon.start()
    assert job.audit.flush(30)
    assert daemon.step_numbers() == [0]
    assert daemon.violations == []
    assert [verdict.step for verdict in job.audit.verdicts()] == [0]
    job.audit.close()


def test_full_queue_drops_whole_steps(daemon: RecordingDaemon) -> None:
    daemon.grant.clear()  # After the first window the daemon takes no more.
    job = Job(daemon.address)
    job.model.append(nn.Linear(1, 1 << 19))
    started = time.monotonic()
    for _ in range(transport.QUEUED_STEPS_MAX + 20):
        with job.audit.step():
            job.audit.tap("wide", job.model(torch.ones(1, 8)))
    assert time.monotonic() - started < 30
    assert job.audit.missed() >= 20 - 1
    daemon.stop()
    daemon.grant.set()
    daemon.start()
    assert job.audit.flush(30)
    job.judged(daemon)
    begin = next(step[0].step_begin for step in daemon.steps if step[0].step_begin.missed)
    assert set(begin.missed_reasons) <= {"queue_full", "disconnected"}
    assert "queue_full" in begin.missed_reasons
    assert daemon.violations == []
    job.audit.close()


def test_no_daemon_and_wrong_addresses(tmp_path: Path) -> None:
    for address in (f"unix:{tmp_path}/nobody.sock", "127.0.0.1:1", "no-such-host.invalid:1"):
        started = time.monotonic()
        job = Job(address)
        for _ in range(3):
            job.step()
        assert job.audit.missed() == 3
        job.audit.close()
        assert time.monotonic() - started < 20


def test_a_refused_job_raises_the_daemon_s_words(daemon: RecordingDaemon) -> None:
    daemon.refusal = (grpc.StatusCode.INVALID_ARGUMENT, "identity.job", "expected letters, found '?'")
    with pytest.raises(plumbline.PlumblineError, match=r"identity\.job: expected letters") as caught:
        Job(daemon.address)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.fields == (("identity.job", "expected letters, found '?'"),)


def test_step_errors_are_kept(daemon: RecordingDaemon) -> None:
    daemon.step_error = "leaf.count: expected 0 or more, found -1"
    job = Job(daemon.address)
    job.step()
    assert job.audit.flush(10)
    assert str(job.audit.errors()[0]) == daemon.step_error
    daemon.step_error = ""
    job.judged(daemon)
    job.audit.close()


def test_a_step_that_cannot_be_sent_is_given_up(daemon: RecordingDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(daemon.address)
    job.step()
    assert job.audit.flush(10)
    encode = transport.encode_step

    def fails(records: object, step: int, *rest: object) -> Iterator[bytes]:
        frames = encode(records, step, *rest)
        yield next(frames)
        if step == 1:
            raise ValueError("no such format")
        yield from frames

    monkeypatch.setattr(transport, "encode_step", fails)
    job.step()
    assert job.audit.flush(10)
    assert str(job.audit.errors()[1]) == "the step cannot be sent: no such format"
    job.judged(daemon)
    assert 1 not in daemon.step_numbers()
    assert daemon.violations == []
    job.audit.close()


def test_listeners_that_raise(daemon: RecordingDaemon) -> None:
    heard = []

    def raises(verdict: plumbline.Verdict) -> None:
        raise RuntimeError("a user's mistake")

    job = Job(daemon.address)
    job.audit.on_verdict(raises)
    job.audit.on_verdict(heard.append)
    job.step()
    assert job.audit.flush(10)
    assert len(heard) == len(job.audit.verdicts()) == 1
    job.step()
    job.audit.close()


def test_errors_of_the_capture_reach_nobody(daemon: RecordingDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(daemon.address)
    with monkeypatch.context() as patch:
        patch.setattr("plumbline.storages.StorageTable.write", lambda *_: 1 / 0)
        job.step()
    assert job.audit.missed() == 1
    job.judged(daemon)
    assert list(daemon.steps[-1][0].step_begin.missed_reasons) == ["capture_error"]
    job.audit.close()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda audit: audit.tap("loss", 0.5), "tap 'loss': expected a tensor, found 0.5"),
        (lambda audit: audit.reference({"loss": "0.5"}), "reference of 'loss': expected a tensor or a number"),
        (lambda audit: audit.reference(0.5), "reference: expected a dict of values by name, found 0.5"),
    ],
)
def test_what_is_no_tensor_costs_its_step_alone(
    daemon: RecordingDaemon, wrong: Callable[[plumbline.Audit], None], says: str
) -> None:
    job = Job(daemon.address)
    with job.audit.step():
        wrong(job.audit)
    job.step()
    assert job.audit.flush(30)
    assert list(job.audit.errors()) == [0] and says in str(job.audit.errors()[0])
    assert [verdict.step for verdict in job.audit.verdicts()] == [1]
    assert list(daemon.steps[-1][0].step_begin.missed_reasons) == ["unmodelled_tap"]
    job.audit.close()


def test_errors_of_operations_reach_the_user(daemon: RecordingDaemon) -> None:
    job = Job(daemon.address)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), job.audit.step():
        job.model(torch.randn(4, 9))
    job.audit.close()


def test_disabled_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_DISABLE", "1")
    job = Job("unix:/nowhere")
    job.step()
    job.audit.tap("x", torch.ones(1))
    job.audit.reference({"x": torch.ones(1)})
    assert job.audit.flush(0)
    assert job.audit.verdicts() == []
    job.audit.close()


def test_wrong_options() -> None:
    for options in ({"capture": "all"}, {"on_type_ii": "explode"}, {"every": 0}):
        with pytest.raises(plumbline.PlumblineError, match="expected"):
            Job("unix:/nowhere", **options)


def run_alone(program: str) -> None:
    """In a process of its own, which must end well."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment)


def test_exit_of_the_process_flushes_and_ends(daemon: RecordingDaemon) -> None:
    program = f"""
import torch, plumbline
model = torch.nn.Linear(4, 4)
audit = plumbline.watch(model, None, {daemon.address!r}, job="exit", every=1)
with audit.step():
    model(torch.ones(2, 4)).sum().backward()
"""
    run_alone(program)
    assert daemon.step_numbers() == [0]


# In a process of its own: in one that used autograd's threads before, as other tests do, a forked child cannot train.
def test_a_forked_child_trains_on(daemon: RecordingDaemon) -> None:
    program = f"""
import os, torch, plumbline
model = torch.nn.Linear(4, 4)
audit = plumbline.watch(model, None, {daemon.address!r}, job="fork", every=1)

def train():
    with audit.step():
        model(torch.ones(2, 4)).sum().backward()

train()
assert audit.flush(10)
child = os.fork()
if child == 0:
    try:
        train()
    except BaseException:
        os._exit(1)
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0
train()
"""
    run_alone(program)
    assert daemon.step_numbers() == [0, 1]


def test_names_inside_of_wrappers(daemon: RecordingDaemon) -> None:
    inner = nn.Linear(4, 4)
    wrapped = nn.DataParallel(inner)
    audit = plumbline.watch(wrapped, None, daemon.address, job="wrapped", every=1)
    with audit.step():
        inner(torch.ones(2, 4)).sum().backward()
    assert audit.flush(10)
    assert {"loss", "grad:weight", "grad:bias"} == set(taps(daemon.steps[0]))
    audit.close()


def test_a_run_that_starts_again_leaves_out_what_is_judged(
    daemon: RecordingDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    first = Job(daemon.address, run="same")
    first.judged(daemon, 3)
    first.audit.close()
    second = Job(daemon.address, run="same")
    for _ in range(5):
        second.step()
        assert second.audit.flush(10)
    assert daemon.step_numbers() == [0, 1, 2, 3, 4]
    assert list(daemon.steps[3][0].step_begin.missed_reasons) == ["already_judged"] * 3
    assert caplog.text.count("up to step 2 the run was judged before") == 1
    second.audit.close()
    third = Job(daemon.address, run="same", first_step=5)
    third.judged(daemon)
    assert daemon.step_numbers()[-1] == 5
    third.audit.close()


def test_eager_steps_of_a_program_that_compiles_elsewhere(daemon: RecordingDaemon) -> None:
    double = torch.compile(lambda x: x * 2, backend="aot_eager")
    assert torch.equal(double(torch.ones(2)), torch.full((2,), 2.0))
    job = Job(daemon.address)
    for _ in range(3):
        job.step()
        assert job.audit.flush(10)
    assert daemon.step_numbers() == [1, 2]  # The first step is watched for compilation.
    assert "grad:0.weight" in taps(daemon.steps[0])
    with job.audit.step():
        double(job.model(torch.ones(1, 8))).sum().backward()
    assert job.audit.flush(10)
    assert daemon.step_numbers() == [1, 2, 3]
    job.audit.close()
    torch._dynamo.reset()
