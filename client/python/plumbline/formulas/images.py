"""Samples of images and volumes at computed places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import PlumblineError
from .register import derivative, of

# Samples of volumes.


@of("grid_sampler_3d.default")
def grid_sampler_3d(x: Tensor, grid: Tensor, kind: int, padding: int, align: bool) -> Tensor:
    n, c, *sizes = x.shape
    if kind == 2:
        return _cubic_samples(x, grid, padding, align)
    places = [_coordinate(grid[..., i], size, padding, align) for i, size in enumerate(reversed(sizes))][::-1]
    flat = x.reshape(n, c, -1)
    if kind == 1:
        return _read(flat, [place.round() for place in places], sizes)
    low = [place.detach().floor() for place in places]
    total: Any = 0
    for corner in range(8):
        ends = [(corner >> axis) & 1 for axis in range(3)]
        weight: Any = 1
        for place, start, end in zip(places, low, ends, strict=True):
            weight = weight * (place - start if end else start + 1 - place)
        held = _read(flat, [start + end for start, end in zip(low, ends, strict=True)], sizes)
        total = total + held * weight.unsqueeze(1)
    return total


@of("grid_sampler_3d_backward.default")
def grid_sampler_3d_backward(
    gradient: Tensor, x: Tensor, grid: Tensor, kind: int, padding: int, align: bool, wanted: list[bool]
) -> list[Tensor | None]:
    found = derivative(
        lambda a, b: grid_sampler_3d(a, b, kind, padding, align), [x, grid], [bool(wanted[0]), kind != 1], gradient
    )
    return [found[0], torch.zeros_like(grid) if found[1] is None else found[1]]


# cuDNN's: bilinear, zeros beyond the borders, corners aligned.


@of("cudnn_grid_sampler.default")
def cudnn_grid_sampler(x: Tensor, grid: Tensor) -> Tensor:
    return torch.ops.aten.grid_sampler_2d.default(x, grid, 0, 0, True)


@of("cudnn_grid_sampler_backward.default")
def cudnn_grid_sampler_backward(x: Tensor, grid: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.grid_sampler_2d_backward.default(gradient, x, grid, 0, 0, True, [True, True])


@of("grid_sampler_2d.default", instead=lambda x, grid, kind, *_: kind == 2)
def grid_sampler_2d(x: Tensor, grid: Tensor, kind: int, padding: int, align: bool) -> Tensor:
    """The cubic interpolation; the others are modelled."""
    return _cubic_samples(x, grid, padding, align)


def _cubic_samples(x: Tensor, grid: Tensor, padding: int, align: bool) -> Tensor:
    """By Keys' kernel with a = -3/4, of four elements along each dimension."""
    n, c, *sizes = x.shape
    dims = len(sizes)
    places = [_element(grid[..., dims - 1 - axis], sizes[axis], align) for axis in range(dims)]
    low = [place.detach().floor() for place in places]
    weights = [_cubic(place - start) for place, start in zip(places, low, strict=True)]
    flat = x.reshape(n, c, -1)

    def total(ends: list[Tensor]) -> Any:
        """Over the dimensions behind those whose elements are chosen."""
        axis = len(ends)
        if axis == dims:
            return _read(flat, ends, sizes)
        found: Any = 0
        for i in range(4):
            end = _padded(low[axis] + (i - 1), sizes[axis], padding, align)
            found = found + total([*ends, end]) * weights[axis][i].unsqueeze(1)
        return found

    return total([])


def _cubic(t: Tensor) -> list[Tensor]:
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


@of("grid_sampler_2d_backward.default", instead=lambda gradient, x, grid, kind, *_: kind == 2)
def grid_sampler_2d_backward(
    gradient: Tensor, x: Tensor, grid: Tensor, kind: int, padding: int, align: bool, wanted: list[bool]
) -> list[Tensor | None]:
    return derivative(
        lambda a, b: grid_sampler_2d(a, b, kind, padding, align), [x, grid], [bool(wanted[0]), True], gradient
    )


def _coordinate(place: Tensor, size: int, padding: int, align: bool) -> Tensor:
    return _padded(_element(place, size, align), size, padding, align)


def _element(place: Tensor, size: int, align: bool) -> Tensor:
    """From [-1, 1] to elements."""
    return (place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2


def _padded(place: Tensor, size: int, padding: int, align: bool) -> Tensor:
    """padding: 0 zeros, 1 the border's, 2 reflected."""
    if padding == 2:
        low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        span = high - low
        if span == 0:
            return torch.zeros_like(place)
        inside = (place - low).abs()
        turns = (inside / span).detach().floor()
        rest = inside - turns * span
        even = turns - (turns / 2).floor() * 2 == 0
        place = torch.where(even, rest + low, span - rest + low)
    return place.clamp(0, size - 1) if padding else place


def _read(flat: Tensor, places: list[Tensor], sizes: list[int]) -> Tensor:
    """Elements of volumes [n, c, all], at whole places [n, ...]; outside of them zero."""
    inside: Any = None
    index: Any = 0
    for place, size in zip(places, sizes, strict=True):
        within = (place >= 0).logical_and(place <= size - 1)
        inside = within if inside is None else inside.logical_and(within)
        index = index * size + place.clamp(0, size - 1).to(torch.int64)
    n, c = flat.shape[:2]
    chosen = flat.gather(2, index.reshape(n, 1, -1).expand(n, c, index[0].numel()))
    return torch.where(inside.unsqueeze(1), chosen.reshape(n, c, *index.shape[1:]), 0)


# Images by filters that grow with the scale (antialias=True): products with a matrix of weights along each dimension.


@of("_upsample_bilinear2d_aa.default")
def upsample_bilinear(x: Tensor, size: list[int], align: bool, *scales: float | None) -> Tensor:
    return _upsampled(x, _triangle, size, align, scales)


@of("_upsample_bicubic2d_aa.default")
def upsample_bicubic(x: Tensor, size: list[int], align: bool, *scales: float | None) -> Tensor:
    return _upsampled(x, _keys, size, align, scales)


@of("_upsample_bilinear2d_aa_backward.default")
def upsample_bilinear_backward(
    gradient: Tensor, size: list[int], before: list[int], align: bool, *scales: float | None
) -> Tensor:
    return _upsampled_backward(gradient, _triangle, size, before, align, scales)


@of("_upsample_bicubic2d_aa_backward.default")
def upsample_bicubic_backward(
    gradient: Tensor, size: list[int], before: list[int], align: bool, *scales: float | None
) -> Tensor:
    return _upsampled_backward(gradient, _keys, size, before, align, scales)


def _triangle(x: Tensor) -> Tensor:
    return (1 - x).clamp(min=0)


def _keys(x: Tensor) -> Tensor:
    """Keys' cubic kernel with a = -1/2, of magnitudes."""
    a = -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def _filters(
    like: Tensor, kernel: Callable[[Tensor], Tensor], before: int, after: int, align: bool, scale: float | None
) -> Tensor:
    """What each element after takes of each before: [after, before]."""
    if like.dtype not in (torch.float32, torch.float64):
        raise PlumblineError("sums in half precision")
    if align:
        step = (before - 1) / (after - 1) if after > 1 else 0.0
    else:
        step = 1 / scale if scale else before / after
    center = (torch.arange(after, dtype=like.dtype, device=like.device) + 0.5) * step
    place = torch.arange(before, dtype=like.dtype, device=like.device) + 0.5
    weight = kernel((place - center.unsqueeze(1)).abs() * (1 / step if step >= 1 else 1.0))
    return weight / weight.sum(1, keepdim=True)


def _upsampled(
    x: Tensor, kernel: Callable[[Tensor], Tensor], size: list[int], align: bool, scales: Sequence[float | None]
) -> Tensor:
    rows, columns = (
        _filters(x, kernel, x.shape[2 + i], size[i], align, scales[i] if len(scales) == 2 else None) for i in range(2)
    )
    return rows @ (x @ columns.T)


def _upsampled_backward(
    gradient: Tensor,
    kernel: Callable[[Tensor], Tensor],
    size: list[int],
    before: list[int],
    align: bool,
    scales: Sequence[float | None],
) -> Tensor:
    rows, columns = (
        _filters(gradient, kernel, before[2 + i], size[i], align, scales[i] if len(scales) == 2 else None)
        for i in range(2)
    )
    return rows.T @ gradient @ columns
