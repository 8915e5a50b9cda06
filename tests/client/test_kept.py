"""Optimizers that people write themselves keep their state in tensors that nobody names: between two runs it
comes apart by roundings, which is no bug, and what is made of it wrongly is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from training import watched

import plumbline

PARTS, STEPS = 3, 5


class Own:
    """Momentum and master weights in tensors of its own; `backwards`: the micro-batches in the other order."""

    decay = 0.9

    def __init__(self, backwards: bool = True, dtype: torch.dtype = torch.float64, late: bool = False) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
        self.backwards, self.late = backwards, late
        self.masters = [parameter.detach().to(dtype) for parameter in self.net.parameters()]
        self.momenta = [torch.zeros_like(master) for master in self.masters]

    def step(self, number: int) -> None:
        draw = torch.Generator().manual_seed(number)
        batches = [torch.randn(4, 6, generator=draw) for _ in range(PARTS)]
        self.net.zero_grad()
        for batch in batches[:: -1 if self.backwards else 1]:
            loss = self.net(batch).square().sum(1).mean()
            (loss if self.late else loss / PARTS).backward()
        with torch.no_grad():
            for index, (parameter, master) in enumerate(zip(self.net.parameters(), self.masters, strict=True)):
                gradient = parameter.grad.to(master.dtype) / (PARTS if self.late else 1)
                master.sub_(self.moved(index, gradient), alpha=0.1)
                parameter.copy_(master)

    def moved(self, index: int, gradient: Tensor) -> Tensor:
        return self.momenta[index].mul_(self.decay).add_(gradient)


class Late(Own):
    """Its mean is in the learning rate: momentum is that of the sum."""

    def __init__(self) -> None:
        super().__init__(late=True)

    def moved(self, index: int, gradient: Tensor) -> Tensor:
        return super().moved(index, gradient * PARTS) / PARTS


class Afterwards(Own):
    """Momentum loses a little after it was used, in one tensor."""

    def moved(self, index: int, gradient: Tensor) -> Tensor:
        moved = super().moved(index, gradient).clone()
        if index == 2:
            self.momenta[index].mul_(1 - 1e-4)
        return moved


class Exchanged(Own):
    """The momenta of two layers' biases, which are of one size, are exchanged in the third step."""

    def step(self, number: int) -> None:
        super().step(number)
        if number == 2:
            with torch.no_grad():
                one, other = self.momenta[1].clone(), self.momenta[3].clone()
                self.momenta[1].copy_(other)
                self.momenta[3].copy_(one)


class Skipped(Own):
    """What the third step makes of a momentum is used and not written back."""

    def step(self, number: int) -> None:
        self.writes = number != 2
        super().step(number)

    def moved(self, index: int, gradient: Tensor) -> Tensor:
        moved = self.decay * self.momenta[index] + gradient
        if self.writes or index != 1:
            self.momenta[index].copy_(moved)
        return moved


class Flat(Own):
    """All momenta lie in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = torch.cat([momentum.flatten() for momentum in self.momenta])
        self.momenta = [
            part.view_as(momentum)
            for part, momentum in zip(
                self.buffer.split([momentum.numel() for momentum in self.momenta]), self.momenta, strict=True
            )
        ]


class Rebound(Own):
    """Makes new tensors for what it keeps: what it leaves is not known."""

    def __init__(self, backwards: bool = True) -> None:
        super().__init__(backwards)

    def moved(self, index: int, gradient: Tensor) -> Tensor:
        self.momenta[index] = self.decay * self.momenta[index] + gradient
        return self.momenta[index]


def judged(server: str, training: Own, name: str, reference: str | None) -> list[plumbline.Verdict]:
    return watched(server, "kept", name, reference, training.net, None, STEPS, training.step)


@pytest.fixture(scope="module")
def plain(server: str) -> str:
    judged(server, Own(backwards=False), "plain", None)
    return "plain"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_roundings_of_earlier_steps_moved_is_no_difference(server: str, dtype: torch.dtype) -> None:
    name = f"plain-{dtype}"
    judged(server, Own(backwards=False, dtype=dtype), name, None)
    verdicts = judged(server, Own(dtype=dtype), f"backwards-{dtype}", name)
    for verdict in verdicts:
        assert verdict.verdict == "TYPE_I", verdict.explain()
    if dtype == torch.float64:
        assert any("kept from step to step" in note for verdict in verdicts for note in verdict.message.notes)


def test_a_mean_that_is_taken_late_is_not_accused(server: str, plain: str) -> None:
    for name, training in (("late", Own(late=True)), ("late-momentum", Late())):
        for verdict in judged(server, training, name, plain):
            assert verdict.verdict == "INCONCLUSIVE", verdict.explain()
            assert f"{PARTS} times the reference's, and nothing that the step trains" in verdict.message.sentence


@pytest.mark.parametrize(("bug", "first"), [(Afterwards, 1), (Exchanged, 2)])
def test_what_is_kept_wrongly_is_found(server: str, plain: str, bug: Callable[[], Own], first: int) -> None:
    verdicts = judged(server, bug(), bug.__name__, plain)
    assert [verdict.verdict for verdict in verdicts[: first + 1]] == ["TYPE_I"] * first + ["TYPE_II"]


def test_what_is_not_written_back_is_no_evidence(server: str, plain: str) -> None:
    verdicts = judged(server, Skipped(), "skipped", plain)
    assert "TYPE_I" not in {verdict.verdict for verdict in verdicts[2:4]}, verdicts[3].explain()


def test_what_is_laid_out_in_another_way_has_to_be_named(server: str, plain: str) -> None:
    verdicts = judged(server, Flat(), "flat", plain)
    assert {verdict.verdict for verdict in verdicts} == {"TYPE_I", "INCONCLUSIVE"}
    for verdict in verdicts:
        assert verdict.verdict == "TYPE_I" or "under no name" in verdict.message.sentence, verdict.explain()


def test_what_is_made_anew_has_to_be_named(server: str) -> None:
    judged(server, Rebound(backwards=False), "anew", None)
    verdicts = judged(server, Rebound(), "anew-backwards", "anew")
    assert "TYPE_II" not in {verdict.verdict for verdict in verdicts}
    open_ = [verdict for verdict in verdicts if verdict.verdict == "INCONCLUSIVE"]
    assert open_ and all("name it with audit.state()" in verdict.message.sentence for verdict in open_)


def test_a_decay_that_is_wrong_is_found_where_the_state_came_apart(server: str, plain: str) -> None:
    training = Own()
    training.decay = 0.9001
    for verdict in judged(server, training, "decay", plain)[1:]:
        assert verdict.verdict == "TYPE_II", verdict.explain()
