"""What hangs on the order of numbers: places among sorted ones, medians, counts between edges."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..definition import UNTOLD
from .register import of, small

# Places among sorted numbers.


@of("bucketize.Tensor", "bucketize.Scalar")
def bucketize(x: Any, boundaries: Tensor, *, out_int32: bool, right: bool) -> Tensor:
    return _places(boundaries, x, out_int32, right)


@of("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    ordered: Tensor, x: Any, *, out_int32: bool, right: bool, side: str | None, sorter: Tensor | None
) -> Tensor:
    if sorter is not None:
        ordered = ordered.gather(-1, sorter)
    return _places(ordered, x, out_int32, right or side == "right")


def _places(ordered: Tensor, x: Any, narrow: bool, right: bool) -> Tensor:
    """How many of `ordered`, along its last dimension, lie before each of x; no number lies behind all."""
    if isinstance(x, Tensor):
        x = x.unsqueeze(-1)
        if ordered.dim() > 1:
            ordered = ordered.unsqueeze(-2)
        small(*torch.broadcast_shapes(x.shape, ordered.shape))
    behind = (ordered > x if right else ordered >= x).logical_not()
    return behind.sum(-1, dtype=torch.int32 if narrow else torch.int64)


@of("nanmedian.default")
def nanmedian(x: Tensor) -> Tensor:
    return _middle(x.flatten(), 0).reshape(())


@of("nanmedian.dim")
def nanmedian_dim(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Any]:
    if x.dim() == 0:
        return x.clone(), UNTOLD
    found = _middle(x, dim)
    return (found if keepdim else found.squeeze(dim)), UNTOLD


def _middle(x: Tensor, dim: int) -> Tensor:
    numbers = x.isnan().logical_not()
    count = numbers.sum(dim, keepdim=True)
    ordered = torch.where(numbers, x, math.inf).sort(dim).values
    return torch.where(count == 0, math.nan, ordered.gather(dim, (count - 1).clamp(min=0) // 2))


@of("mode.default")
def mode(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Any]:
    """The smallest of the most frequent numbers."""
    if x.dim() == 0:
        return x.clone(), UNTOLD
    rows = x.movedim(dim, -1)
    small(*rows.shape, rows.shape[-1])
    counts = (rows.unsqueeze(-1) == rows.unsqueeze(-2)).sum(-1)
    found = rows.masked_fill(counts < counts.amax(-1, keepdim=True), math.inf).amin(-1)
    return (found.unsqueeze(dim) if keepdim else found), UNTOLD


# Counts between edges.


@of("histogram.bins_tensor")
def histogram(x: Tensor, edges: Tensor, *, weight: Tensor | None, density: bool) -> tuple[Tensor, Tensor]:
    flat = x.flatten()
    small(flat.shape[0], edges.shape[0])
    above = flat >= edges[:-1].unsqueeze(1)
    below = torch.cat([flat < edges[1:-1].unsqueeze(1), flat <= edges[-1:].unsqueeze(1)])
    inside = above.logical_and(below)
    held = torch.where(inside, torch.ones_like(flat) if weight is None else weight.flatten(), 0).sum(1)
    if density:
        held = held / held.sum() / (edges[1:] - edges[:-1])
    return held, edges.clone()
