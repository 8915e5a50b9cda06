"""An optimizer that works on copies of the weights, which it copies back, is compared with one that works on these,
also when their roundings have led the runs apart."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import plumbline

RATE, STEPS = 0.05, 6


class Copies:
    """SGD on copies of the weights."""

    def __init__(self, net: nn.Module) -> None:
        self.weights = list(net.parameters())
        self.copies = [weight.detach().clone().requires_grad_() for weight in self.weights]
        self.optimizer = torch.optim.SGD(self.copies, lr=RATE)

    def update(self) -> None:
        for copy, weight in zip(self.copies, self.weights, strict=True):
            copy.grad = weight.grad
        self.optimizer.step()
        for copy, weight in zip(self.copies, self.weights, strict=True):
            weight.copy_(copy)


class ByHand:
    def __init__(self, net: nn.Module, rate: float) -> None:
        self.weights, self.rate, self.optimizer = list(net.parameters()), rate, None

    def update(self) -> None:
        for weight in self.weights:
            weight.sub_(self.rate * weight.grad)


def run(server: str, name: str, seed: int, rate: float | None, reference: str | None) -> list[plumbline.Verdict]:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    training = Copies(net) if rate is None else ByHand(net, rate)
    audit = plumbline.watch(
        net, training.optimizer, server, job="copies", run=name, reference=reference, every=1, keep_trace=True
    )
    for step in range(STEPS):
        draw = torch.Generator().manual_seed(step)
        x, y = torch.randn(12, 8, generator=draw), torch.randn(12, 4, generator=draw)
        with audit.step():
            for weight in net.parameters():
                weight.grad = None
            with torch.autocast("cpu", torch.bfloat16):
                loss = (net(x).float() - y).square().mean()
            loss.backward()
            with torch.no_grad():
                training.update()
        assert audit.flush()
    assert not audit.errors()
    verdicts = audit.verdicts()
    audit.close()
    return verdicts


@pytest.mark.parametrize("seed", [2, 5])
def test_copies_follow_the_weights_that_they_equal(server: str, seed: int) -> None:
    run(server, f"copies-{seed}", seed, None, None)
    for verdict in run(server, f"hand-{seed}", seed, RATE, f"copies-{seed}"):
        assert verdict.verdict == "TYPE_I", verdict.explain()
    for verdict in run(server, f"wrong-{seed}", seed, RATE * 1.001, f"copies-{seed}"):
        assert verdict.verdict == "TYPE_II", verdict.explain()
