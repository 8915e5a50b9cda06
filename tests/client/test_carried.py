"""Gradients that a step leaves are judged where a later step adds to them, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from training import watched

import plumbline

# Called with an optimizer before backward (False) and after it (True), and with the step's number.
Step = Callable[[torch.optim.Optimizer, int, bool], object]


def run(server: str, name: str, step: Step, reference: str | None = None, steps: int = 3) -> list[plumbline.Verdict]:
    torch.manual_seed(0)
    net, draw = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def both(number: int) -> None:
        x, y = torch.randn(8, 6, generator=draw), torch.randn(8, 3, generator=draw)
        step(optimizer, number, False)
        nn.functional.mse_loss(net(x), y).backward()
        step(optimizer, number, True)

    return watched(server, "carried", name, reference, net, optimizer, steps, both)


def outcomes(verdicts: list[plumbline.Verdict]) -> list[str]:
    return [verdict.verdict for verdict in verdicts]


def gradients(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter.grad for parameter in optimizer.param_groups[0]["params"] if parameter.grad is not None]


def at_start(optimizer: torch.optim.Optimizer, number: int, after: bool) -> None:
    if after:
        optimizer.step()
    else:
        optimizer.zero_grad()


def in_place(optimizer: torch.optim.Optimizer, number: int, after: bool) -> None:
    if after:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def to_none(optimizer: torch.optim.Optimizer, number: int, after: bool) -> None:
    if after:
        optimizer.step()
        optimizer.zero_grad()


def never(optimizer: torch.optim.Optimizer, number: int, after: bool) -> None:
    if after:
        optimizer.step()


def test_one_training_however_gradients_are_cleared(server: str) -> None:
    ways = {"start": at_start, "in_place": in_place, "none": to_none}
    for name, step in ways.items():
        run(server, name, step)
    for name, step in ways.items():
        for other in ways.keys() - {name}:
            verdicts = run(server, f"{name}-{other}", step, other)
            assert outcomes(verdicts) == ["TYPE_I"] * 3, [verdict.explain() for verdict in verdicts]


@pytest.mark.parametrize("clears", [at_start, in_place, to_none])
def test_a_program_that_never_clears(server: str, clears: Step) -> None:
    run(server, clears.__name__, clears)
    verdicts = run(server, f"never-{clears.__name__}", never, clears.__name__)
    assert outcomes(verdicts) == ["TYPE_I", "TYPE_II", "TYPE_II"], [verdict.explain() for verdict in verdicts]


def test_what_is_left_and_cleared_at_the_next_start_is_nobodys(server: str) -> None:
    def clips(optimizer: torch.optim.Optimizer, number: int, after: bool) -> None:
        at_start(optimizer, number, after)
        if after:
            for gradient in gradients(optimizer):
                gradient.clamp_(-0.01, 0.01)

    run(server, "plain", at_start)
    verdicts = run(server, "clips", clips, "plain")
    assert outcomes(verdicts) == ["TYPE_I"] * 3, [verdict.explain() for verdict in verdicts]


def accumulates(change: Callable[[Tensor], object], at_each: bool) -> Step:
    """Every second step is an update; gradients are changed before it, or in every step."""

    def step(optimizer: torch.optim.Optimizer, number: int, after: bool) -> None:
        last = number % 2 == 1
        if not after:
            return
        with torch.no_grad():
            for gradient in gradients(optimizer) if at_each or last else []:
                change(gradient)
        if last:
            optimizer.step()
            optimizer.zero_grad()

    return step


def limits(gradient: Tensor) -> None:
    gradient.clamp_(-0.02, 0.02)


def masks(gradient: Tensor) -> None:
    gradient[gradient > 0] = 0


@pytest.mark.parametrize("change", [limits, masks])
def test_what_is_carried_is_judged(server: str, change: Callable[[Tensor], object]) -> None:
    once, each, name = accumulates(change, False), accumulates(change, True), change.__name__
    run(server, name, once, steps=4)
    same = run(server, f"{name}-again", once, name, steps=4)
    assert outcomes(same) == ["TYPE_I"] * 4, [verdict.explain() for verdict in same]
    verdicts = run(server, f"{name}-each", each, name, steps=4)
    assert outcomes(verdicts)[1::2] == ["TYPE_II"] * 2, [verdict.explain() for verdict in verdicts]
    assert {verdict.verdict for verdict in verdicts[::2]} == {"TYPE_I"}, [verdict.explain() for verdict in verdicts]
    assert (verdicts[1].grade, verdicts[1].cause) == ("PROVEN", "LEAF_MISMATCH"), verdicts[1].explain()


def test_gradients_that_are_cleared_between_micro_batches(server: str) -> None:
    carries = accumulates(lambda gradient: None, False)

    def forgets(optimizer: torch.optim.Optimizer, number: int, after: bool) -> None:
        carries(optimizer, number, after)
        if after:
            optimizer.zero_grad(set_to_none=False)

    run(server, "carries", carries, steps=4)
    verdicts = run(server, "forgets", forgets, "carries", steps=4)
    assert outcomes(verdicts) == ["TYPE_I", "TYPE_II"] * 2, [verdict.explain() for verdict in verdicts]


@pytest.mark.parametrize("factor", [None, 0.0, 0.5])
def test_gradients_that_change_between_steps(server: str, factor: float | None) -> None:
    """To clear them there is no fault; what scales them is out of sight. None: they stay."""
    torch.manual_seed(0)
    net = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with plumbline.watch(net, optimizer, server, job="carried", run=f"between-{factor}", every=1) as audit:
        for number in range(4):
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(number))
            with audit.step():
                if number % 2 == 0:
                    optimizer.zero_grad()
                (net(x).square().mean() / 2).backward()
                if number % 2 == 1:
                    optimizer.step()
            assert audit.flush()
            for parameter in net.parameters() if factor is not None else ():
                parameter.grad.mul_(factor)
        verdicts = audit.verdicts()
    changed = "TYPE_II" if factor else "TYPE_I"
    assert outcomes(verdicts) == ["TYPE_I", changed, "TYPE_I", changed], [verdict.explain() for verdict in verdicts]
    assert [verdict.cause for verdict in verdicts if verdict.verdict == "TYPE_II"] == ["INVARIANT"] * (
        2 if factor else 0
    )
