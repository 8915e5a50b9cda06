"""The share of units that a relu leaves active: a unit is so where the relu's argument is positive, and its result,
which is exactly zero elsewhere, lies near no tie for that. Another bias wakes other units."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "active units",
    "which units a relu leaves active",
    size=(16, 48),
    halves=TYPE_I,
    bias=TYPE_II,
    suspect={"bias": r"bias|relu|gt"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, weight, bias = (normal(seed + i, *shape, dtype=dtype) for i, shape in enumerate(((32, size), (size, 24), (24,))))

    def shares(hidden: Tensor) -> dict[str, Tensor]:
        active = F.relu(hidden) > 0
        return {"active": active.to(dtype).mean(0)}

    def target() -> dict[str, Tensor]:
        if variant == "bias":
            return shares(x @ weight + (bias + 0.5))
        half = size // 2
        return shares(x[:, :half] @ weight[:half] + x[:, half:] @ weight[half:] + bias)

    return target, lambda: shares(x @ weight + bias)
