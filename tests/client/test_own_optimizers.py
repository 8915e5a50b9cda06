"""An optimizer that people write themselves, in tensors that nobody names, beside the framework's, whose state has
names: of the reference's a trace at rest has no content."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from training import watched

import plumbline

STEPS = 4
RATE, BETAS, EPS = 0.01, (0.9, 0.999), 1e-8


class Training:
    """Layers of one size, so that many tensors of state are of one shape. `optimizer`: None, it is this class's own."""

    betas = BETAS
    second_first = False  # The order in which an update works out its two means.
    corrects = True

    def __init__(self, optimizer: Callable[..., torch.optim.Optimizer] | None = None, **options: bool) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.optimizer = optimizer and optimizer(self.net.parameters(), lr=RATE, betas=BETAS, eps=EPS, **options)
        self.means: dict[Tensor, list[Tensor]] = {}
        self.count = 0

    def step(self, number: int) -> None:
        self.net.zero_grad()
        self.net(torch.randn(5, 6, generator=torch.Generator().manual_seed(number))).square().sum(1).mean().backward()
        if self.optimizer is not None:
            self.optimizer.step()
            return
        self.count += 1
        with torch.no_grad():
            for parameter in self.net.parameters():
                means = self.means.setdefault(parameter, [torch.zeros_like(parameter) for _ in range(3)])
                self.update(parameter, parameter.grad, means)

    def update(self, parameter: Tensor, gradient: Tensor, means: list[Tensor]) -> None:
        first, second = means[:2]
        for mean, beta, of in [(first, self.betas[0], gradient), (second, self.betas[1], gradient * gradient)][
            :: -1 if self.second_first else 1
        ]:
            mean.mul_(beta).add_(of, alpha=1 - beta)
        spread = self.spread(means) / (1 - self.betas[1] ** self.count if self.corrects else 1)
        parameter.sub_(RATE * first / (1 - self.betas[0] ** self.count) / (spread.sqrt() + EPS))

    def spread(self, means: list[Tensor]) -> Tensor:
        return means[1]


class SecondFirst(Training):
    second_first = True


class Uncorrected(Training):
    corrects = False


class OtherBeta(Training):
    betas = BETAS[0], 0.99


class OwnAMSGrad(Training):
    def spread(self, means: list[Tensor]) -> Tensor:
        return torch.maximum(means[2], means[1], out=means[2])


class FirstIsLost(Training):
    """What the first step made of the means is used, and lost."""

    def update(self, parameter: Tensor, gradient: Tensor, means: list[Tensor]) -> None:
        super().update(parameter, gradient, [mean.clone() for mean in means] if self.count == 1 else means)


class MadeAnew(Training):
    """What a step leaves is in new tensors, of which nothing is known."""

    def update(self, parameter: Tensor, gradient: Tensor, means: list[Tensor]) -> None:
        means[:] = [mean.clone() for mean in means]
        super().update(parameter, gradient, means)


def judged(server: str, training: Training, name: str, reference: str | None) -> list[plumbline.Verdict]:
    return watched(server, "own", name, reference, training.net, training.optimizer, STEPS, training.step)


@pytest.fixture(scope="module")
def adam(server: str) -> str:
    judged(server, Training(torch.optim.Adam), "adam", None)
    return "adam"


def of(verdicts: list[plumbline.Verdict]) -> list[str]:
    return [verdict.verdict for verdict in verdicts]


@pytest.mark.parametrize("own", [Training, SecondFirst])
def test_an_own_optimizer_is_one_with_the_frameworks(server: str, adam: str, own: type[Training]) -> None:
    """But what its first step left is told by nothing."""
    verdicts = judged(server, own(), own.__name__, adam)
    assert of(verdicts) == ["TYPE_I", "INCONCLUSIVE", *["TYPE_I"] * (STEPS - 2)], verdicts[-1].explain()
    assert "name it with audit.state()" in verdicts[1].message.sentence
    assert any("kept from step to step" in note for note in verdicts[2].message.notes)


def test_three_of_one_size_are_told_apart(server: str) -> None:
    judged(server, Training(torch.optim.Adam, amsgrad=True), "amsgrad", None)
    verdicts = judged(server, OwnAMSGrad(), "own-amsgrad", "amsgrad")
    assert of(verdicts) == ["TYPE_I", "INCONCLUSIVE", *["TYPE_I"] * (STEPS - 2)], verdicts[-1].explain()


def test_a_wrong_update_is_found_in_every_step(server: str, adam: str) -> None:
    verdicts = judged(server, Uncorrected(), "uncorrected", adam)
    assert of(verdicts) == ["TYPE_II"] * STEPS, verdicts[1].explain()


@pytest.mark.parametrize("own", [OtherBeta, MadeAnew, FirstIsLost])
def test_what_is_not_left_alike_is_no_evidence(server: str, adam: str, own: type[Training]) -> None:
    verdicts = judged(server, own(), own.__name__, adam)
    open_ = verdicts[1:2] if own is FirstIsLost else verdicts[1:]
    assert set(of(open_)) == {"INCONCLUSIVE"}, open_[0].explain()
    assert all("audit.state()" in verdict.message.sentence for verdict in open_)
