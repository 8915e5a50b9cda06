"""What hangs on the order of numbers: places among sorted ones, a median, counts between edges."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

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


def _middle(x: Tensor, dim: int) -> Tensor:
    numbers = x.isnan().logical_not()
    count = numbers.sum(dim, keepdim=True)
    ordered = torch.where(numbers, x, math.inf).sort(dim).values
    return torch.where(count == 0, math.nan, ordered.gather(dim, (count - 1).clamp(min=0) // 2))


# Counts between edges.


@of("histogram.bins_tensor")
def histogram(x: Tensor, edges: Tensor, *, weight: Tensor | None, density: bool) -> tuple[Tensor, Tensor]:
    return _counted(x.reshape(-1, 1), [edges], weight, density), edges.clone()


@of("histogram.bin_ct")
def histogram_of_equal_parts(
    x: Tensor, bins: int, *, range: list[float] | None, weight: Tensor | None, density: bool
) -> tuple[Tensor, Tensor]:
    (edges,) = _edges(x.reshape(-1, 1), [bins], range)
    return _counted(x.reshape(-1, 1), [edges], weight, density), edges


@of("_histogramdd_bin_edges.default")
def histogram_edges(
    x: Tensor, bins: list[int], *, range: list[float] | None, weight: Tensor | None, density: bool
) -> list[Tensor]:
    return _edges(x.reshape(-1, x.shape[-1]), bins, range)


@of("_histogramdd_from_bin_cts.default")
def histogram_by_counts(
    x: Tensor, bins: list[int], *, range: list[float] | None, weight: Tensor | None, density: bool
) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return _counted(rows, _edges(rows, bins, range), weight, density)


@of("_histogramdd_from_bin_tensors.default")
def histogram_by_edges(x: Tensor, bins: list[Tensor], *, weight: Tensor | None, density: bool) -> Tensor:
    return _counted(x.reshape(-1, x.shape[-1]), bins, weight, density)


def _edges(rows: Tensor, bins: list[int], ends: list[float] | None) -> list[Tensor]:
    """Of equal parts of the range, which is the numbers' own where none is given; by coordinate."""
    found = []
    for axis, count in enumerate(bins):
        if ends:
            low, high = (
                torch.full((), end, dtype=rows.dtype, device=rows.device) for end in ends[2 * axis : 2 * axis + 2]
            )
        elif rows.shape[0] == 0:
            low, high = torch.zeros_like(rows.sum()), torch.ones_like(rows.sum())
        else:
            low, high = rows[:, axis].amin(), rows[:, axis].amax()
        one = low == high
        low, high = torch.where(one, low - 0.5, low), torch.where(one, high + 0.5, high)
        share = torch.arange(1, count, dtype=rows.dtype, device=rows.device) / count
        found.append(torch.cat([low.reshape(1), low + (high - low) * share, high.reshape(1)]))
    return found


def _counted(rows: Tensor, edges: list[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """How many rows [n, coordinates], or the sum of their weights, lie between edges of each coordinate."""
    small(rows.shape[0], *(each.shape[0] for each in edges))
    held = torch.ones_like(rows[:, 0]) if weight is None else weight.flatten()
    for axis, each in enumerate(edges):
        place = rows[:, axis]
        above = place >= each[:-1].unsqueeze(1)
        below = torch.cat([place < each[1:-1].unsqueeze(1), place <= each[-1:].unsqueeze(1)])
        held = torch.where(above.logical_and(below), held.unsqueeze(-2), 0)
    found = held.sum(-1)
    if density:
        found = found / found.sum()
        for axis, each in enumerate(edges):
            width = each[1:] - each[:-1]
            found = found / width.reshape(-1, *[1] * (len(edges) - 1 - axis))
    return found
