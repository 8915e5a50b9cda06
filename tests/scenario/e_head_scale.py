"""Queries divided by sqrt(80) and multiplied by 80 ** -0.5: two constants, each rounded once where the kernel takes
it, whose product is not quite 1. A constant of four digits is another scale."""

import math

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

HEAD = 80


@scenario(
    "head scale",
    "division by sqrt(80) against a product with 80 ** -0.5",
    size=(6, 24),
    reciprocal=TYPE_I,
    each_side=TYPE_I,
    four_digits=TYPE_II,
    suspect={"four_digits": r"scale|sqrt"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q, k, v = (normal(seed + i, 2, size, HEAD, dtype=dtype) for i in range(3))

    def taps(scores: Tensor) -> dict[str, Tensor]:
        out = torch.softmax(scores, -1) @ v
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, Tensor]:
        if variant == "each_side":
            return taps((q * HEAD**-0.25) @ (k * HEAD**-0.25).transpose(-2, -1))
        scale = 0.1118 if variant == "four_digits" else HEAD**-0.5
        return taps((q * scale) @ k.transpose(-2, -1))

    return target, lambda: taps(q @ k.transpose(-2, -1) / math.sqrt(HEAD))
