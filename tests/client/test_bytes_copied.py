"""copy.deepcopy copies a tensor's memory byte by byte: that is no data that the step was fed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from training import watched

import plumbline

STEPS = 3


def judged(server: str, name: str, reference: str | None, kept: str, parts: int, factor: float) -> list:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def copies() -> list[Tensor]:
        if kept == "gradients":
            return copy.deepcopy([parameter.grad for parameter in net.parameters()])
        return list(copy.deepcopy(net.state_dict()).values())

    def step(number: int) -> None:
        optimizer.zero_grad()
        for part in torch.randn(6, 6, generator=torch.Generator().manual_seed(number)).chunk(parts):
            (net(part).square().sum() / 6).backward()
        for parameter, held in zip(net.parameters(), copies(), strict=True):
            parameter.grad = parameter.grad + factor * held / (1 + held.norm())
        optimizer.step()

    return watched(server, "bytes", name, reference, net, optimizer, STEPS, step)


@pytest.mark.parametrize("kept", ["gradients", "weights"])
def test_copies_of_bytes_are_copies_of_values(server: str, kept: str) -> None:
    judged(server, f"whole-{kept}", None, kept, 1, 0.5)
    verdicts: list[plumbline.Verdict] = judged(server, f"parts-{kept}", f"whole-{kept}", kept, 2, 0.5)
    for verdict in verdicts:
        assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
    for verdict in judged(server, f"wrong-{kept}", f"whole-{kept}", kept, 2, 0.501):
        assert verdict.verdict == "TYPE_II", verdict.explain()
