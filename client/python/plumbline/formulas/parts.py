"""Ranges, parts of tensors and segments, normalisation as exported graphs have it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..definition import WORKSPACE
from ..errors import PlumblineError
from .register import derivative, of, small

# Ranges whose ends are tensors, or exponents.


@of("linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None, device: Any, **_: Any) -> Tensor:
    return _between(start, end, steps, dtype, device)


@of("logspace.default", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def logspace(
    start: Any, end: Any, steps: int, base: float, *, dtype: torch.dtype | None, device: Any, **_: Any
) -> Tensor:
    return torch.pow(base, _between(start, end, steps, dtype, device))


def _between(start: Any, end: Any, steps: int, dtype: torch.dtype | None, device: Any) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point:
        raise PlumblineError("a range of whole numbers, which rounds as its kernel does")
    share = torch.arange(steps, dtype=dtype, device=device) * (1 / max(steps - 1, 1))
    return start + (end - start) * share if steps > 1 else share + start


# Parts of tensors.


@of("as_strided_copy.default")
def as_strided_copy(x: Tensor, size: list[int], stride: list[int], offset: int | None) -> Tensor:
    return x.as_strided(size, stride, offset).clone()


@of("as_strided_scatter.default")
def as_strided_scatter(x: Tensor, source: Tensor, size: list[int], stride: list[int], offset: int | None) -> Tensor:
    whole = x.clone()
    whole.as_strided(size, stride, offset).copy_(source)
    return whole


@of("_chunk_cat.default", instead=lambda tensors, dim, chunks: dim != 0)
def chunk_cat(tensors: list[Tensor], dim: int, chunks: int) -> Tensor:
    return torch._decomp.decomposition_table[torch.ops.aten._chunk_cat.default](tensors, dim, chunks)


# Segments.


@of("segment_reduce.default")
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None,
    indices: Tensor | None,
    offsets: Tensor | None,
    axis: int,
    unsafe: bool,
    initial: float | None,
) -> Tensor:
    return _of_segments(data, reduce, _segments(data, lengths, offsets), initial)


@of("_segment_reduce_backward.default")
def segment_reduce_backward(
    gradient: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None,
    offsets: Tensor | None,
    axis: int,
    initial: float | None,
) -> Tensor | None:
    segments = _segments(data, lengths, offsets)
    return derivative(lambda x: _of_segments(x, reduce, segments, initial), [data], [True], gradient)[0]


def _segments(data: Tensor, lengths: Tensor | None, offsets: Tensor | None) -> tuple[int, Tensor, Tensor]:
    """The dimension along which segments lie; which rows belong to which; how many do."""
    axis = (offsets if lengths is None else lengths).dim() - 1
    if offsets is None:
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    else:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    rows = torch.arange(data.shape[axis], device=data.device)
    small(starts.shape[-1], *data.shape)
    return axis, (rows >= starts.unsqueeze(-1)).logical_and(rows < ends.unsqueeze(-1)), ends - starts


def _of_segments(data: Tensor, reduce: str, segments: tuple[int, Tensor, Tensor], initial: float | None) -> Tensor:
    axis, member, count = segments
    neutral = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[reduce]
    inner = [1] * (data.dim() - axis - 1)
    held = torch.where(member.reshape(*member.shape, *inner), data.unsqueeze(axis), neutral)
    if reduce in ("max", "min"):
        found = held.amax(axis + 1) if reduce == "max" else held.amin(axis + 1)
        limit = torch.maximum if reduce == "max" else torch.minimum
        return found if initial is None else limit(found, torch.full_like(found, initial))
    if reduce == "prod":
        return held.prod(axis + 1) * (1 if initial is None else initial)
    if data.dtype in (torch.bfloat16, torch.float16):  # Added one after the other in their own format.
        places = torch.zeros(held.shape[axis + 1], dtype=torch.long, device=held.device)
        shape = [*held.shape[: axis + 1], 1, *held.shape[axis + 2 :]]
        total = held.new_zeros(shape).index_add(axis + 1, places, held).squeeze(axis + 1)
    else:
        total = held.sum(axis + 1)
    total = total + (0 if initial is None else initial)
    if reduce == "sum":
        return total
    count = count.reshape(*count.shape, *inner)
    empty = count == 0
    return torch.where(empty, math.nan if initial is None else initial, total / torch.where(empty, 1, count))


# Normalisation as exported graphs have it.


@of("_batch_norm_with_update.default")
def batch_norm_with_update(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    old_mean: Tensor,
    old_variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    functional = torch._decomp.decomposition_table[torch.ops.aten._native_batch_norm_legit_functional.default]
    out, saved_mean, saved_rstd, mean, variance = functional(
        x, weight, bias, old_mean, old_variance, True, momentum, eps
    )
    return out, saved_mean, saved_rstd, WORKSPACE, mean.to(old_mean.dtype), variance.to(old_variance.dtype)


@of("batch_norm_backward.default")
def batch_norm_backward(*args: Any) -> Any:
    return torch._decomp.decomposition_table[torch.ops.aten.batch_norm_backward.default](*args)


@of("rrelu_with_noise_backward.default")
def rrelu_backward(
    gradient: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, is_result: bool
) -> Tensor:
    if training and upper - lower > 1e-6:
        return gradient * noise
    return torch.where(x > 0, gradient, gradient * ((lower + upper) / 2))
