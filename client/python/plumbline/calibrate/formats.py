"""Formats as the audit charges them, and exact arithmetic to measure against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Format:
    name: str
    dtype: torch.dtype
    precision: int
    exponent_min: int  # Of the smallest normal.

    @property
    def u(self) -> float:
        return 2.0**-self.precision

    @property
    def smallest_normal(self) -> float:
        return 2.0**self.exponent_min

    @property
    def eta(self) -> float:
        """Half the smallest subnormal; 0 for fp64, which has no number for it."""
        return self.smallest_normal * self.u

    @property
    def largest(self) -> float:
        return torch.finfo(self.dtype).max


FP64 = Format("fp64", torch.float64, 53, -1022)
FP32 = Format("fp32", torch.float32, 24, -126)
FP16 = Format("fp16", torch.float16, 11, -14)
BF16 = Format("bf16", torch.bfloat16, 8, -126)


def exact(x: torch.Tensor) -> np.ndarray:
    """The same numbers in the format that references are computed in: fp64, and beyond fp64 the machine's widest."""
    wide = x.detach().cpu()
    return wide.numpy().astype(np.longdouble) if x.dtype == torch.float64 else wide.double().numpy()


def finite_bits(fmt: Format, count: int, generator: torch.Generator) -> torch.Tensor:
    """Numbers of random bits: every exponent alike."""
    kind = {8: torch.int64, 4: torch.int32, 2: torch.int16}[torch.finfo(fmt.dtype).bits // 8]
    info = torch.iinfo(kind)
    high = info.max if kind == torch.int64 else info.max + 1
    x = torch.randint(info.min, high, (count,), generator=generator, dtype=kind).view(fmt.dtype)
    return torch.where(torch.isfinite(x), x, torch.ones_like(x))


def every_half(fmt: Format) -> torch.Tensor:
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(fmt.dtype)
    return x[torch.isfinite(x)]
