"""Gradients that are zero by mathematics, and what is left of them by rounding: they silence nothing beside them, are
measured by the terms that cancel in them, and two runs that are equal bit by bit are a match."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline

# Computes a step in one of two ways, its loss changed by a factor.
Program = Callable[[bool, float], dict[str, Tensor]]


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def taps(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    loss.backward()
    return {"loss": loss.detach(), **{f"grad:{name}": p.grad for name, p in model.named_parameters()}}


def made(*layers: Callable[[], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(layer() for layer in layers))


def before_batch_norm(other: bool, factor: float) -> dict[str, Tensor]:
    """The biases of two layers before the norm."""
    model = made(
        lambda: nn.Linear(6, 16),
        lambda: nn.Linear(16, 16),
        lambda: nn.BatchNorm1d(16),
        nn.ReLU,
        lambda: nn.Linear(16, 4),
    )
    x, y = drawn(1, 24, 6), drawn(2, 24, 4)
    if other:
        h = model[1](model[0](x))
        mean = h.mean(0)
        h = (h - mean) / ((h - mean).square().mean(0) + 1e-5).sqrt()
        out = model[4]((h * model[2].weight + model[2].bias).relu())
    else:
        out = model(x)
    return taps(model, F.mse_loss(out * factor, y))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor, other: bool) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (2, 8)).transpose(1, 2) for part in (self.query, self.key, self.value))
        seen = (q @ k.mT / 8**0.5).softmax(-1) @ v if other else F.scaled_dot_product_attention(q, k, v)
        return self.out(seen.transpose(1, 2).flatten(2))


def bias_of_keys(other: bool, factor: float) -> dict[str, Tensor]:
    model = made(Attention)[0]
    return taps(model, F.mse_loss(model(drawn(1, 3, 7, 16), other) * factor, drawn(2, 3, 7, 16)))


def group_relative_policy(other: bool, factor: float) -> dict[str, Tensor]:
    """On policy each ratio is 1, and the advantages of a group add up to 0: so does the loss."""
    model = made(lambda: nn.Linear(8, 32), nn.Tanh, lambda: nn.Linear(32, 10))
    actions = torch.randint(0, 10, (6, 5), generator=torch.Generator().manual_seed(3))
    reward = drawn(4, 6)
    advantage = (reward - reward.mean()) / (reward.std() + 1e-4) * factor
    scores = model(drawn(1, 6, 5, 8))
    if other:
        chance = -F.cross_entropy(scores.flatten(0, 1), actions.flatten(), reduction="none").view(6, 5)
    else:
        chance = scores.log_softmax(-1).gather(-1, actions[..., None])[..., 0]
    ratio = (chance - chance.detach()).exp()
    gain = torch.min(ratio * advantage[:, None], ratio.clamp(0.8, 1.2) * advantage[:, None])
    return taps(model, -gain.mean(-1).mean())


def divergence_from_oneself(other: bool, factor: float) -> dict[str, Tensor]:
    """The first minibatch of a policy that is kept near its reference: the loss is 0, and with it every gradient."""
    model = made(lambda: nn.Linear(8, 32), nn.Tanh, lambda: nn.Linear(32, 32), nn.ReLU, lambda: nn.Linear(32, 10))
    x = drawn(1, 12, 8)
    scores = model(x)
    with torch.no_grad():
        kept = model(x) * factor
    if other:
        loss = (kept.softmax(-1) * (kept.softmax(-1).log() - scores.softmax(-1).log())).sum() / 12
    else:
        loss = F.kl_div(scores.log_softmax(-1), kept.log_softmax(-1), log_target=True, reduction="batchmean")
    return taps(model, loss)


def shares_that_add_up(other: bool, factor: float) -> dict[str, Tensor]:
    """A bias that reaches the loss through shares that always add up to 1; its weights have a gradient beside."""
    model = made(lambda: nn.Linear(8, 10))[0]
    x = drawn(1, 12, 8)
    scores = model(x.flip(0) if other else x)
    if other:
        scores = scores - scores.amax(-1, keepdim=True).detach()
    return taps(model, scores.softmax(-1).sum(-1).mean() + (model.weight * factor).square().mean())


PROGRAMS = [before_batch_norm, bias_of_keys, group_relative_policy, divergence_from_oneself, shares_that_add_up]


def whole(verdict: plumbline.Verdict) -> bool:
    return verdict.verdict == "TYPE_I" and not verdict.coverage.opaque and not any("open" in n for n in verdict.notes)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("capture", ["leaves", "outputs"])
def test_a_step_is_answered_whole(server: str, program: Program, capture: str) -> None:
    def judged(target: bool, reference: object) -> plumbline.Verdict:
        return plumbline.compare(lambda: program(target, 1.0), reference, server, capture=capture)

    for other in (False, True):
        alone = judged(other, None)
        assert whole(alone), alone.explain()
        equal = judged(other, lambda other=other: program(other, 1.0))
        assert whole(equal) and equal.grade == "MATCH", equal.explain()
        paired = judged(other, lambda other=other: program(not other, 1.0))
        assert whole(paired), paired.explain()
        valued = judged(other, program(not other, 1.0))
        assert whole(valued), valued.explain()


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("other", [False, True])
def test_a_bug_beside_it_is_proven(server: str, program: Program, other: bool) -> None:
    verdict = plumbline.compare(lambda: program(other, 1.01), lambda: program(False, 1.0), server)
    assert verdict.verdict == "TYPE_II" and verdict.grade == "PROVEN", verdict.explain()


def test_a_gradient_that_is_small_but_not_zero_is_measured_by_itself(server: str) -> None:
    """Beside what cancels in the bias's gradient something is left, 1e5 times smaller than its terms."""

    def program(left: float) -> dict[str, Tensor]:
        model = made(lambda: nn.Linear(6, 16), lambda: nn.BatchNorm1d(16), nn.ReLU, lambda: nn.Linear(16, 4))
        model(drawn(1, 24, 6)).square().mean().backward()
        return {"grad": model[0].bias.grad + left}

    verdict = plumbline.compare(lambda: program(1.01e-6), lambda: program(1e-6), server)
    assert verdict.verdict == "TYPE_II" and verdict.grade == "PROVEN", verdict.explain()


@pytest.mark.parametrize("take", [lambda d: torch.argsort(d)[:3], lambda d: torch.topk(d, 3).indices])
def test_an_order_of_what_is_zero_is_no_difference(server: str, take: Callable[[Tensor], Tensor]) -> None:
    """Softmax's gradient adds up to zero over each row: which row's sum is the largest, rounding decides."""
    a, g = drawn(1, 16, 5), drawn(2, 16, 5)

    def rows(p: Tensor) -> dict[str, Tensor]:
        return {"rows": g[take((p * (g - (p * g).sum(-1, keepdim=True))).sum(-1))]}

    verdict = plumbline.compare(
        lambda: rows(a.softmax(-1)), lambda: rows(a.exp() / a.exp().sum(-1, keepdim=True)), server
    )
    assert verdict.verdict == "TYPE_I", verdict.explain()


def test_points_at_no_distance_have_no_gradient(server: str) -> None:
    """Of each point to itself, where a root has no slope, and a distance has that of PyTorch's rule: 0."""
    x, weight, head, y = drawn(1, 8, 10), drawn(2, 10, 6) / 3, drawn(3, 8, 4) / 2, torch.arange(8) % 4

    def program(distances: Callable[[Tensor], Tensor]) -> Callable[[], dict[str, Tensor]]:
        def step() -> dict[str, Tensor]:
            w = weight.clone().requires_grad_()
            loss = F.cross_entropy(distances(x @ w) @ head, y)
            loss.backward()
            return {"loss": loss.detach(), "w": w.grad}

        return step

    one = program(lambda z: torch.cdist(z, z))
    verdict = plumbline.compare(one, None, server, capture="leaves")
    assert verdict.verdict == "TYPE_I", verdict.explain()
    verdict = plumbline.compare(program(lambda z: (z[:, None] - z).norm(dim=-1)), one, server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    verdict = plumbline.compare(program(lambda z: 1.02 * torch.cdist(z, z)), one, server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()
