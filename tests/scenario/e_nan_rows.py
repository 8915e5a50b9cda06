"""Rows of scores that are masked whole: their softmax is NaN in both programs. NaN in the same places excuses nothing
in the others, and a NaN that one program replaces by zero is a difference."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

HEAD = 16


@scenario(
    "NaN rows",
    "rows that are NaN in both programs",
    size=(6, 24),
    both=TYPE_I,
    scale=TYPE_II,
    one_row_more=TYPE_II,
    cause={"one_row_more": "RANGE|MATHEMATICS"},
    suspect={"scale": r"scale|\* HEAD|softmax", "one_row_more": r"seen|masked_fill|softmax|where"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q, k, v = (normal(seed + i, size, HEAD, dtype=dtype) for i in range(3))
    seen = torch.rand(size, size, generator=torch.Generator().manual_seed(seed)) < 0.7
    seen[:, 0], seen[1], seen[3] = True, False, False

    def target() -> dict[str, Tensor]:
        scale = HEAD**-0.5 * (1.001 if variant == "scale" else 1)
        mine = seen.clone()
        if variant == "one_row_more":
            mine[4] = False
        scores = (q * scale) @ k.T
        return {"out": torch.softmax(scores.masked_fill(~mine, -float("inf")), -1) @ v}

    def reference() -> dict[str, Tensor]:
        scores = q @ k.T * HEAD**-0.5
        return {"out": torch.softmax(torch.where(seen, scores, torch.full_like(scores, -float("inf"))), -1) @ v}

    return target, reference
