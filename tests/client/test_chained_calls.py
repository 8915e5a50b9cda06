"""Operations that are not modelled, one after the other: the second is fed what the first gave, in each execution
another rounding of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import plumbline


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    own = torch.library.Library("chained", "DEF")
    own.define("act(Tensor x) -> Tensor")
    own.impl("act", lambda x: x * torch.sigmoid(x), "CPU")
    yield
    own._destroy()


def layers(parts: bool, depth: int, factor: float = 1) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    x, w = torch.randn(8, 50, generator=draw), torch.randn(50, 50, generator=draw) / 7
    for layer in range(depth):
        x = x[:, :20] @ w[:20] + x[:, 20:] @ w[20:] if parts else x @ w
        x = torch.ops.chained.act(x if layer else factor * x)
    return x


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_chain_accuses_nobody(server: str, depth: int) -> None:
    verdict = plumbline.compare(lambda: {"y": layers(True, depth)}, lambda: {"y": layers(False, depth)}, server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    assert verdict.coverage.opaque == depth


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_what_the_first_is_fed_is_compared(server: str, depth: int) -> None:
    verdict = plumbline.compare(lambda: {"y": layers(True, depth, 1.001)}, lambda: {"y": layers(False, depth)}, server)
    assert verdict.verdict == "TYPE_II", verdict.explain()


def test_a_list_is_held_above_a_number(server: str) -> None:
    x = torch.rand(8, 50, generator=torch.Generator().manual_seed(0))

    def means(parts: bool, low: float = 0.5) -> Tensor:
        held = [x[:, :20].sum(1) / 50 + x[:, 20:].sum(1) / 50 if parts else x.sum(1) / 50]
        for _ in range(3):
            held = torch._foreach_minimum(torch._foreach_maximum(held, low), 2.0)
            held = torch._foreach_mul(held, held)
        return held[0]

    same = plumbline.compare(lambda: {"y": means(True)}, lambda: {"y": means(False)}, server)
    assert (same.verdict, same.coverage.opaque) == ("TYPE_I", 0), same.explain()
    wrong = plumbline.compare(lambda: {"y": means(True, 0.51)}, lambda: {"y": means(False)}, server)
    assert wrong.verdict == "TYPE_II", wrong.explain()
