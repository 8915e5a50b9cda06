"""Micro-batches that are steps of their own: a factor that the last of them takes out is no difference of mathematics,
and what they do wrong is found where an optimizer takes their gradients, or in the step that does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import plumbline

MICRO = 3  # Steps until the optimizer takes the gradients.


@dataclass(frozen=True)
class Program:
    weight: float = 1  # Of each loss.
    divisor: float = 1  # Of all gradients, in the end.
    empty: int = -1  # The step whose batch has no targets,
    skips: int = -1  # and that without a backward.
    kept: int = 0  # So many parameters have an optimizer of their own, which takes their gradients after all steps.
    scaler: bool = False
    heads: bool = False  # Each micro-batch has a head of its own.
    cancels: bool = False  # Losses are what rounding leaves of terms that cancel, as of normalised advantages.
    meddle: Callable[[int, nn.Module, torch.optim.Optimizer], object] = lambda *_: None


MEAN = Program(weight=1 / MICRO)
LATE = Program(divisor=MICRO)


def verdicts_of(
    server: str, run: str, program: Program, reference: str | None = None, every: int = 1
) -> list[plumbline.Verdict]:
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(1)
    # The gradient of a bias before a normalisation is zero by mathematics.
    body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh())
    net = nn.ModuleList([body, *(nn.Linear(8, 3) for _ in range(MICRO if program.heads else 1))])
    parameters = list(net.parameters())
    often = torch.optim.AdamW(parameters[program.kept :], lr=0.01)
    seldom = [torch.optim.SGD(parameters[: program.kept], lr=0.01)] if program.kept else []
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=program.scaler)
    with plumbline.watch(
        net, [often, *seldom], server, job="micro", run=run, reference=reference, every=every, keep_trace=True
    ) as audit:
        for number in range(2 * MICRO):
            x, y = torch.randn(8, 6, generator=draw), torch.randn(8, 3, generator=draw)
            with audit.step():
                out = net[1 + number % (len(net) - 1)](body(x))
                error = (out - out.detach()).exp() * (y - y.mean()) if program.cancels else (out - y).square()
                error = error * (number != program.empty)
                if number != program.skips:
                    scaler.scale(error.mean() * program.weight).backward()
                program.meddle(number, net, often)
                last = [often] * (number % MICRO == MICRO - 1) + seldom * (number == 2 * MICRO - 1)
                for optimizer in last:
                    scaler.unscale_(optimizer)
                    for parameter in optimizer.param_groups[0]["params"] if program.divisor != 1 else []:
                        parameter.grad /= program.divisor
                    scaler.step(optimizer)
                    optimizer.zero_grad()
                if last:
                    scaler.update()
            assert audit.flush()
        assert not audit.errors()
        return audit.verdicts()


def outcomes(verdicts: list[plumbline.Verdict]) -> list[str]:
    return [verdict.verdict for verdict in verdicts]


def told(verdicts: list[plumbline.Verdict]) -> list[str]:
    return [verdict.explain() for verdict in verdicts]


@pytest.mark.parametrize("weight", [1, 64 / MICRO, 1000])
def test_a_scale_that_the_last_one_takes_out(server: str, weight: float) -> None:
    verdicts_of(server, f"ref-{weight}", MEAN)
    program = Program(weight=weight, divisor=weight * MICRO)
    right = verdicts_of(server, f"right-{weight}", program, f"ref-{weight}")
    assert outcomes(right) == ["INCONCLUSIVE", "INCONCLUSIVE", "TYPE_I"] * 2, told(right)
    assert "times the reference's" in right[0].message.sentence
    wrong = verdicts_of(server, f"wrong-{weight}", replace(program, divisor=1.01 * program.divisor), f"ref-{weight}")
    assert outcomes(wrong) == ["INCONCLUSIVE", "INCONCLUSIVE", "TYPE_II"] * 2, told(wrong)


WAYS = {
    "empty_first": Program(empty=0),
    "empty_middle": Program(empty=1),
    "empty_last": Program(empty=2),
    "skipped": Program(skips=1),
    "two_optimizers": Program(kept=2),
    "scaler": Program(scaler=True),
    "heads": Program(heads=True),
    "cancels": Program(cancels=True),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_mean_that_is_taken_late(server: str, way: str) -> None:
    program = WAYS[way]
    verdicts_of(server, way, replace(program, weight=1 / MICRO))
    right = verdicts_of(server, f"{way}-right", replace(program, divisor=MICRO), way)
    assert "TYPE_II" not in outcomes(right), told(right)
    assert outcomes(right)[MICRO - 1 :: MICRO] == ["TYPE_I"] * 2, told(right)
    wrong = verdicts_of(server, f"{way}-wrong", replace(program, divisor=MICRO + 1), way)
    assert outcomes(wrong)[MICRO - 1 :: MICRO] == ["TYPE_II"] * 2, told(wrong)


@pytest.mark.parametrize("scaled", ["target", "reference"])
def test_a_gradient_scaler_on_one_side(server: str, scaled: str) -> None:
    verdicts_of(server, f"of-{scaled}", replace(MEAN, scaler=scaled == "reference"))
    right = verdicts_of(server, f"{scaled}-scaled", replace(LATE, scaler=scaled == "target"), f"of-{scaled}")
    assert outcomes(right) == ["INCONCLUSIVE", "INCONCLUSIVE", "TYPE_I"] * 2, told(right)


def test_a_scale_that_was_not_audited(server: str) -> None:
    """Every second step: what the others left may be scaled, which excuses no mean that nobody takes."""
    verdicts_of(server, "every", MEAN, every=2)
    right = verdicts_of(server, "every-right", LATE, "every", every=2)
    assert outcomes(right) == ["INCONCLUSIVE"] * 3, told(right)
    assert "were not audited" in right[1].message.sentence
    wrong = verdicts_of(server, "every-wrong", Program(), "every", every=2)
    assert outcomes(wrong)[1] == "TYPE_II", told(wrong)


def doubles(number: int, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if number == 1:
        for parameter in net.parameters():
            parameter.grad *= 2


def forgets(number: int, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if number == MICRO + 1:
        for state in optimizer.state.values():
            state["exp_avg"].zero_()


@pytest.mark.parametrize("program", [MEAN, LATE], ids=["mean", "late"])
def test_gradients_that_a_step_without_a_backward_changes(server: str, program: Program) -> None:
    ref = f"skips-{program.divisor}"
    verdicts_of(server, ref, replace(MEAN, skips=1))
    wrong = verdicts_of(server, f"{ref}-doubles", replace(program, skips=1, meddle=doubles), ref)
    assert outcomes(wrong)[MICRO - 1] == "TYPE_II", told(wrong)


def test_state_that_is_written_where_no_optimizer_steps(server: str) -> None:
    verdicts_of(server, "state", MEAN)
    wrong = verdicts_of(server, "state-forgets", replace(MEAN, meddle=forgets), "state")
    assert outcomes(wrong)[MICRO + 1] == "INCONCLUSIVE", told(wrong)
