"""Sinusoidal positions by exp(-i log(10000) / d) and by 1 / 10000^(i / d), both within the step. Python's constant is
rounded when the kernel takes it, which the exponential makes several units in the last place. Rates that are spread
over d - 2 are other rates."""

import math

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

WIDTH = 24


@scenario(
    "sinusoids",
    "sinusoidal positions by exponential and by power",
    size=(8, 64),
    exponential=TYPE_I,
    spread=TYPE_II,
    suspect={"spread": r"torch\.exp|10000|rates"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, size, WIDTH, dtype=dtype)
    even = torch.arange(0, WIDTH, 2).to(dtype)

    def taps(rates: Tensor) -> dict[str, Tensor]:
        angles = torch.arange(size).to(dtype)[:, None] * rates
        out = torch.tanh(x + torch.cat([angles.sin(), angles.cos()], -1))
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, Tensor]:
        return taps(torch.exp(even * (-math.log(10000.0) / (WIDTH - 2 if variant == "spread" else WIDTH))))

    return target, lambda: taps(1.0 / 10000.0 ** (even / WIDTH))
