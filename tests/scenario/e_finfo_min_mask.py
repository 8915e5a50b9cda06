"""An additive mask of finfo.min: whatever is added to it is below half a unit in its last place, so that masked scores
are the mask. The other scores have a small term that is wrong."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

HEAD = 16


@scenario(
    "finfo.min mask",
    "an additive mask of finfo.min beside a wrong small term",
    size=(6, 24),
    right=TYPE_I,
    wrong=TYPE_II,
    suspect={"wrong": r"bias"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q, k, v = (normal(seed + i, 2, size, HEAD, dtype=dtype) for i in range(3))
    future = torch.ones(size, size, dtype=torch.bool).triu(1)
    bias = normal(seed + 3, size, size, dtype=dtype) * 0.01
    mask = torch.zeros(size, size, dtype=dtype).masked_fill(future, torch.finfo(torch.float32).min)

    def target() -> dict[str, Tensor]:
        small = bias * (0.99 if variant == "wrong" else 1.0)
        scores = mask + (small + q @ (k / HEAD**0.5).transpose(-2, -1))
        return {"scores": scores, "out": torch.softmax(scores, -1) @ v}

    def reference() -> dict[str, Tensor]:
        scores = q @ k.transpose(-2, -1) / HEAD**0.5 + bias + mask
        return {"scores": scores, "out": torch.softmax(scores, -1) @ v}

    return target, reference
