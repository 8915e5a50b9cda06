"""Pooling over windows that random numbers place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .register import of

# Pooling over windows that random numbers place.


@of("fractional_max_pool2d.default", "fractional_max_pool3d.default")
def fractional_max_pool(x: Tensor, kernel: list[int], size: list[int], samples: Tensor) -> tuple[Tensor, Tensor]:
    dims = len(size)
    batched = x.dim() == dims + 2
    whole = x if batched else x.unsqueeze(0)
    n, c, *sizes = whole.shape
    samples = samples.reshape(n, c, dims)
    index: Any = 0
    for axis, (before, after, window) in enumerate(zip(sizes, size, kernel, strict=True)):
        # The numbers come in the order of the memory's dimensions, but in two dimensions the other way round.
        sample = samples[..., dims - 1 - axis if dims == 2 else axis].unsqueeze(-1)
        inner = torch.arange(max(after - 1, 0), dtype=samples.dtype, device=x.device)
        step = (before - window) / (after - 1) if after > 1 else 0.0
        starts = ((inner + sample) * step).floor() - (sample * step).floor()
        starts = torch.cat([starts.to(torch.int64), torch.full_like(sample, before - window).to(torch.int64)], 2)
        places = starts.unsqueeze(-1) + torch.arange(window, device=x.device)
        spread = [1] * (2 * dims)
        spread[axis], spread[dims + axis] = after, window
        index = index * before + places.reshape(n, c, *spread)
    index = index.flatten(2 + dims).flatten(2, 1 + dims)
    held = whole.flatten(2).gather(2, index.flatten(2)).reshape(index.shape)
    chosen = index.gather(3, held.argmax(-1, keepdim=True)).squeeze(-1)
    found = whole.flatten(2).gather(2, chosen)
    shape = [n, c, *size] if batched else [c, *size]
    return found.reshape(shape), chosen.reshape(shape)


@of("fractional_max_pool2d_backward.default", "fractional_max_pool3d_backward.default")
def fractional_max_pool_backward(
    gradient: Tensor, x: Tensor, kernel: list[int], size: list[int], indices: Tensor
) -> Tensor:
    dims = len(size)
    flat = torch.zeros_like(x).flatten(-dims)
    return flat.scatter_add(-1, indices.flatten(-dims), gradient.flatten(-dims)).reshape(x.shape)
