"""Masks that are drawn with one chance are one mathematics, whether a program gives that chance as a number or in a
tensor; another chance is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import plumbline

KEPT = 0.7  # The chance of a one.
X = torch.randn(16, 6, generator=torch.Generator().manual_seed(1))

Mask = Callable[[Tensor, float], Tensor]

MASKS: dict[str, Mask] = {
    "dropout": lambda x, p: F.dropout(x, 1 - p),
    "number": lambda x, p: x * torch.empty_like(x).bernoulli_(p) / p,
    "shape": lambda x, p: x * torch.bernoulli(torch.zeros_like(x), p) / p,
    "tensor": lambda x, p: x * torch.bernoulli(torch.full_like(x, p)) / p,
    "wide": lambda x, p: x * torch.empty_like(x).bernoulli_(torch.full_like(x, p, dtype=torch.float64)) / p,
}


def masked(mask: Mask, p: float) -> Callable[[], dict[str, Tensor]]:
    def program() -> dict[str, Tensor]:
        torch.manual_seed(0)
        return {"y": mask(X, p)}

    return program


@pytest.mark.parametrize("name", sorted(MASKS.keys() - {"dropout"}))
@pytest.mark.parametrize("other", ["dropout", "tensor"])
def test_one_chance_in_any_form(server: str, name: str, other: str) -> None:
    verdict = plumbline.compare(masked(MASKS[name], KEPT), masked(MASKS[other], KEPT), server)
    assert verdict.verdict == "TYPE_I", verdict.explain()


@pytest.mark.parametrize("name", sorted(MASKS.keys() - {"dropout"}))
@pytest.mark.parametrize("other", ["dropout", "tensor"])
def test_another_chance(server: str, name: str, other: str) -> None:
    def mistaken(x: Tensor, p: float) -> Tensor:
        return MASKS[name](x, p - 0.1) * ((p - 0.1) / p)

    verdict = plumbline.compare(masked(mistaken, KEPT), masked(MASKS[other], KEPT), server)
    assert verdict.verdict == "TYPE_II", verdict.explain()
