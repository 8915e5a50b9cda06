"""Products whose scales cancel along the contracted dimension, and rows that a function stretches without limit, round
no more than others: healthy runs pass, alone and beside another way to write them, and an error is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # Of the weight, the inputs and the targets.
SCALES = torch.exp(torch.linspace(0, 25, 8))[:, None]


def run(server: str, name: str, loss: Loss, reference: str | None = None) -> plumbline.Verdict:
    draw = torch.Generator().manual_seed(5)
    x, y = torch.randn(8, 8, generator=draw), torch.randn(8, 4, generator=draw)
    net = nn.Module()
    net.weight = nn.Parameter(torch.randn(8, 4, generator=draw))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    audit = plumbline.watch(
        net, optimizer, server, job="cancelling", run=name, reference=reference, every=1, keep_trace=True
    )
    with audit.step():
        loss(net.weight, x, y).backward()
        optimizer.step()
    assert audit.flush()
    (verdict,) = audit.verdicts()
    audit.close()
    return verdict


def scaled(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return (((x * SCALES).t() @ (w / SCALES)) * y).sum()


def scaled_by_terms(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return (((x * SCALES)[:, :, None] * (w / SCALES)[:, None]).sum(0) * y).sum()


def exponentials(x: Tensor) -> Tensor:
    return torch.exp(x * SCALES.log() / 2)  # A softmax that nobody shifted.


def attention(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    e = exponentials(x)
    return F.mse_loss((e @ w) / e.sum(-1, keepdim=True), y)


def attention_of_probabilities(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    e = exponentials(x)
    return F.mse_loss((e / e.sum(-1, keepdim=True)) @ w, y)


def padded(w: Tensor, x: Tensor) -> Tensor:
    return (x * (torch.arange(8) < 6)[:, None]) @ w


def directions(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return (F.normalize(padded(w, x), dim=-1) - y).square().mean()


def directions_by_hand(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    z = padded(w, x)
    return (z / z.norm(dim=-1, keepdim=True).clamp_min(1e-12) - y).square().mean()


@pytest.mark.parametrize(
    ("loss", "other"),
    [(scaled, scaled_by_terms), (attention, attention_of_probabilities), (directions, directions_by_hand)],
)
def test_healthy_runs_pass_and_an_error_is_found(server: str, loss: Loss, other: Loss) -> None:
    alone = run(server, loss.__name__, loss)
    assert alone.verdict == "TYPE_I", alone.explain()
    beside = run(server, other.__name__, other, loss.__name__)
    assert beside.verdict == "TYPE_I", beside.explain()
    wrong = run(server, f"wrong-{loss.__name__}", lambda w, x, y: other(w, x, y) * (1 + 1e-4), loss.__name__)
    assert (wrong.verdict, wrong.grade) == ("TYPE_II", "PROVEN"), wrong.explain()
