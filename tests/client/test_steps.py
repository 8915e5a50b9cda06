"""Which steps are found in training loops that know nothing of it, and that these compute what they would alone."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from recording_daemon import RecordingDaemon
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.flop_counter import FlopCounterMode

import plumbline
from plumbline.run.steps import Steps
from plumbline.run.summary import lines_of
from plumbline.v1 import trace_pb2

Loop = Callable[[], object]


@contextlib.contextmanager
def followed(server: str, job: str, every: int = 1) -> Iterator[Steps]:
    steps = Steps(
        lambda models, optimizers, step: plumbline.watch(
            models, optimizers, server, job=job, every=every, first_step=step
        ),
        wait=True,
    )
    patched = (nn.Module.__call__, torch.optim.Optimizer.__init__, torch.autograd._engine_run_backward, torch.compile)
    try:
        yield steps
    finally:
        steps.finish(None)
        for audit in steps.audits:
            audit.close()
    assert not _get_current_dispatch_mode_stack()
    left = (nn.Module.__call__, torch.optim.Optimizer.__init__, torch.autograd._engine_run_backward, torch.compile)
    assert all(one is not other for one, other in zip(patched[1:], left[1:], strict=True))
    assert left[0] is nn.Module._wrapped_call_impl


def said(server: str, loop: Loop, every: int = 1) -> list[str]:
    """The summary of a loop, whose parameters must become what they become by themselves."""
    torch.manual_seed(0)
    plain = loop()
    torch.manual_seed(0)
    with followed(server, loop.__name__, every) as steps:
        watched = loop()
    assert same(plain, watched)
    return list(lines_of(steps))


def same(plain: object, watched: object) -> bool:
    if isinstance(plain, Tensor) and isinstance(watched, Tensor):
        return torch.equal(plain, watched)
    if isinstance(plain, (list, tuple)) and isinstance(watched, (list, tuple)):
        return len(plain) == len(watched) and all(map(same, plain, watched))
    return plain == watched


def net(inputs: int = 8, outputs: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def trained(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def loss_of(model: nn.Module) -> Tensor:
    return model(torch.randn(5, 8)).square().mean()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def train(model: nn.Module, steps: int = 3) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        step(model, optimizer)
    return trained(model)


def adversaries() -> list[Tensor]:
    """A generator and a discriminator, each with its optimizer."""
    makes, tells = net(4, 8), net(8, 1)
    makes_better, tells_better = (torch.optim.Adam(m.parameters(), lr=1e-2) for m in (makes, tells))
    for _ in range(2):
        real, fake = torch.randn(6, 8), makes(torch.randn(6, 4))
        tells_better.zero_grad()
        (F.softplus(-tells(real)).mean() + F.softplus(tells(fake.detach())).mean()).backward()
        tells_better.step()
        makes_better.zero_grad()
        F.softplus(-tells(fake)).mean().backward()
        makes_better.step()
    return trained(makes) + trained(tells)


def two_optimizers_of_one_model() -> list[Tensor]:
    model = net()
    optimizers = [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.AdamW(model[2].parameters())]
    for _ in range(3):
        model.zero_grad()
        loss_of(model).backward()
        for optimizer in optimizers:
            optimizer.step()
    return trained(model)


def closures() -> list[Tensor]:
    model, x = net(), torch.randn(6, 8)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return trained(model)


def clipped_weights() -> list[Tensor]:
    """What a loop does right after its optimizer has stepped is part of the step: it bounds weights, averages them,
    moves a rate that is a tensor."""
    model = net()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(4):
        step(model, optimizer)
        for parameter in model.parameters():
            parameter.data.clamp_(-0.1, 0.1)
        average.update_parameters(model)
        schedule.step()
    return trained(model) + trained(average)


def folds() -> list[Tensor]:
    """One model after another, by the same names."""
    return train(net(), 2) + train(net(), 2)


def a_frozen_part() -> list[Tensor]:
    encodes, model = net(8, 8).eval(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        with torch.no_grad():
            x = encodes(torch.randn(5, 8))
        optimizer.zero_grad()
        nn.MSELoss()(model(x), torch.zeros(5, 4)).backward()
        optimizer.step()
    return trained(model)


def overflow() -> list[Tensor]:
    """A gradient scaler leaves out the first steps."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for _ in range(5):
        optimizer.zero_grad()
        scaler.scale(loss_of(model)).backward()
        scaler.step(optimizer)
        scaler.update()
    return trained(model)


def a_thread() -> list[Tensor]:
    """Ends with its last step."""
    weights: list[Tensor] = []
    thread = threading.Thread(target=lambda: weights.extend(train(net())))
    thread.start()
    thread.join()
    return weights


def a_bad_batch() -> list[Tensor]:
    """The loop goes on after an exception."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(3):
        optimizer.zero_grad()
        with contextlib.suppress(KeyError):
            loss = loss_of(model)
            if number == 1:
                raise KeyError("a bad batch")
            loss.backward()
            optimizer.step()
    return trained(model)


@pytest.mark.parametrize(
    "loop, steps",
    [
        (adversaries, 4),
        (two_optimizers_of_one_model, 3),
        (closures, 2),
        (clipped_weights, 4),
        (folds, 4),
        (a_frozen_part, 3),
        (a_thread, 3),
        (a_bad_batch, 2),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_every_step_is_found_and_explained(server: str, loop: Loop, steps: int) -> None:
    assert said(server, loop) == [f"{steps} of {steps} steps audited: {steps} TYPE_I"]


def test_skipped_steps_belong_to_the_next_one(server: str) -> None:
    first, *rest = said(server, overflow)
    assert first.endswith("TYPE_I") and "TYPE_II" not in first
    assert not rest


def test_taps_are_those_of_a_watched_loop(server: str) -> None:
    with followed(server, "taps") as steps:
        two_optimizers_of_one_model()
    taps = steps.audits[0].verdicts()[-1].taps
    assert {"loss", "all gradients", "update:0.weight", "update:2.bias", "state:2.weight.exp_avg"} <= set(taps)


def test_what_a_closure_runs_is_no_optimizer_s(daemon: RecordingDaemon) -> None:
    with followed(daemon.address, "closures"):
        closures()
    frames = [frame for frame in daemon.steps[0] if frame.WhichOneof("frame") == "op"]
    sites = {(frame.op.module, frame.op.phase) for frame in frames}
    assert {("0", trace_pb2.PHASE_FORWARD), ("0", trace_pb2.PHASE_BACKWARD), ("", trace_pb2.PHASE_OPTIMIZER)} <= sites
    gradients = {frame.tap.name for frame in daemon.steps[0] if frame.tap.name.startswith("grad:0.weight")}
    assert {"grad:0.weight", "grad:0.weight#1"} <= gradients


def test_one_step_in_so_many(server: str) -> None:
    def seven() -> list[Tensor]:
        return train(net(), 7)

    with followed(server, "seven", every=3) as steps:
        seven()
    assert [verdict.step for verdict in steps.audits[0].verdicts()] == [0, 3, 6]
    assert list(lines_of(steps)) == ["3 of 7 steps audited: 3 TYPE_I"]


def test_a_program_that_trains_in_evaluation_mode(server: str) -> None:
    def in_evaluation_mode() -> list[Tensor]:
        return train(net().eval())

    assert said(server, in_evaluation_mode) == [
        "2 of 3 steps audited: 2 TYPE_I",
        "1 step not audited: the modules were called in evaluation mode",
    ]


def test_a_program_without_modules(server: str) -> None:
    def without_modules() -> Tensor:
        weight = nn.Parameter(torch.randn(8, 4))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (torch.randn(5, 8) @ weight).square().mean().backward()
            optimizer.step()
        return weight.detach().clone()

    assert said(server, without_modules) == [
        "2 of 3 steps audited: 2 TYPE_I",
        "1 step not audited: no module was called before the optimizer stepped",
    ]


def test_two_threads(server: str) -> None:
    """The first is audited, once the other's optimizer is known to be no concern of it."""

    def both() -> list[Tensor]:
        turns, end = [threading.Event(), threading.Event()], threading.Barrier(2)
        models = [net(), net()]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]

        def work(own: int) -> None:
            for _ in range(3):
                turns[own].wait()
                turns[own].clear()
                step(models[own], optimizers[own])
                turns[1 - own].set()
            end.wait()

        threads = [threading.Thread(target=work, args=(own,)) for own in range(2)]
        for thread in threads:
            thread.start()
        turns[0].set()
        for thread in threads:
            thread.join()
        return trained(models[0]) + trained(models[1])

    assert said(server, both) == [
        "2 of 3 steps audited: 2 TYPE_I",
        "1 step with an error, the first of them step 0: not captured: one of its optimizers stepped in another thread",
        "3 steps in other threads, which are not audited",
    ]


def test_the_next_thread_after_the_first(server: str) -> None:
    """Whose optimizer had stepped beside the first one's."""

    def in_turn() -> list[Tensor]:
        models = [net(), net()]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]

        def first() -> None:
            step(models[0], optimizers[0])
            other = threading.Thread(target=step, args=(models[1], optimizers[1]))
            other.start()
            other.join()
            step(models[0], optimizers[0])

        def then() -> None:
            step(models[1], optimizers[1])

        for work in (first, then):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        return trained(models[0]) + trained(models[1])

    first, *rest = said(server, in_turn)
    assert first == "2 of 3 steps audited: 2 TYPE_I"
    assert len(rest) == 2


def test_a_thread_that_never_ends(server: str) -> None:
    done, end = threading.Event(), threading.Event()

    def work() -> None:
        train(net())
        done.set()
        end.wait()

    thread = threading.Thread(target=work)
    with followed(server, "endless") as steps:
        thread.start()
        done.wait()
    first = next(lines_of(steps))
    end.set()
    thread.join()
    assert first == "2 of 3 steps audited: 2 TYPE_I"


def test_a_program_that_audits_itself_is_left_to_it(server: str) -> None:
    def itself() -> list[str]:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with plumbline.watch(model, optimizer, server, job="itself", every=1) as audit:
            for _ in range(2):
                with audit.step():
                    step(model, optimizer)
                assert audit.flush()
            return [verdict.verdict for verdict in audit.verdicts()]

    with followed(server, "of_another") as steps:
        assert itself() == ["TYPE_I", "TYPE_I"]
    assert "2 steps not audited: a dispatch mode of the program's was active" in list(lines_of(steps))


def test_modes_of_the_program_s_own(server: str) -> None:
    def counts() -> list[object]:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        counters = [FlopCounterMode(display=False) for _ in range(3)]
        with counters[0]:
            step(model, optimizer)
        with counters[1]:
            loss = loss_of(model)
        loss.backward()
        with counters[2]:
            optimizer.step()
            model(torch.randn(5, 8))
        step(model, optimizer)
        return [*trained(model), *(counter.get_total_flops() for counter in counters)]

    assert said(server, counts)


def test_a_forked_child_is_not_audited(server: str, tmp_path: Path) -> None:
    """It is forked within a step, and computes as if there were none."""

    def forks() -> list[Tensor]:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        loss = loss_of(model)
        child = os.fork()
        if not child:
            os._exit(len(_get_current_dispatch_mode_stack()) or (loss.exp() + 1).isfinite().logical_not().item())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        loss.backward()
        optimizer.step()
        return trained(model)

    assert said(server, forks) == ["2 of 2 steps audited: 2 TYPE_I"]
