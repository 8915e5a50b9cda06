"""What hangs on how numbers are written: mantissas, exponents, neighbours. In fp64, where each step is exact."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import PlumblineError
from .register import of

_STEPS = (512, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1)  # Together more than any exponent.


@of("frexp.Tensor")
def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    mantissa, _, exponent, proper = _parts(x)
    signed = torch.where(x < 0, -mantissa, mantissa)
    return (
        torch.where(proper, signed.to(x.dtype), x),
        torch.where(proper, exponent, 0).to(torch.int32),
    )


@of("nextafter.default")
def nextafter(x: Tensor, toward: Tensor) -> Tensor:
    if x.dtype is torch.float64:
        raise PlumblineError("neighbours in fp64, which nothing wider tells apart")
    x, toward = torch.broadcast_tensors(x, toward)
    limits = torch.finfo(x.dtype)
    least = limits.smallest_normal * limits.eps
    mantissa, scale, _, proper = _parts(x)
    upward = toward > x
    outward = upward == (x > 0)
    # Neighbours in [1/2, 1) lie eps / 2 apart; just below a power of two they lie half as far apart.
    step = scale * (limits.eps / 2) * torch.where((mantissa == 0.5).logical_and(outward.logical_not()), 0.5, 1.0)
    step = torch.where(proper, step.clamp(min=least), torch.where(x == 0, least, 0.0))
    wide = torch.where(proper, x.double(), torch.where(x == 0, 0.0, x.sign() * float(limits.max)))
    moved = torch.where(upward, wide + step, wide - step)
    beyond = (moved.abs() > float(limits.max)).logical_and(proper)
    moved = torch.where(beyond, x.sign() * math.inf, moved).to(x.dtype)
    found = torch.where(x == toward, toward, moved)
    return torch.where((x == x).logical_and(toward == toward), found, math.nan)


def _parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of |x|: its mantissa in [1/2, 1), the power of two that this is times, the power's exponent; where there are."""
    size = x.double().abs()
    proper = (size > 0).logical_and(size < math.inf)
    size = torch.where(proper, size, 0.5)
    scale, exponent = torch.ones_like(size), torch.zeros_like(size, dtype=torch.int64)
    for steps, by in ((_STEPS, 1), (_STEPS, -1)):
        for step in steps:
            far = size >= 2.0**step if by > 0 else size < 2.0**-step
            size = torch.where(far, size * 2.0 ** (-step * by), size)
            scale = torch.where(far, scale * 2.0 ** (step * by), scale)
            exponent = torch.where(far, exponent + step * by, exponent)
    over = size >= 1
    size, scale = torch.where(over, size * 0.5, size), torch.where(over, scale * 2.0, scale)
    return size, scale, torch.where(over, exponent + 1, exponent), proper
