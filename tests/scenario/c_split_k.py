"""Triton 1190, 1808: a product whose inner dimension is split, and whose partial sums are added at the end."""

import torch
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario("split-K product", "inner dimension in four parts (Triton 1190, 1808)", size=(2048, 4096), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    a, b = normal(seed, 12, size, dtype=dtype), normal(seed + 1, size, 10, dtype=dtype)

    def target() -> dict[str, torch.Tensor]:
        parts = [x @ y for x, y in zip(a.chunk(4, 1), b.chunk(4, 0), strict=True)]
        out = parts[0]
        for part in parts[1:]:
            out = out + part
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, torch.Tensor]:
        out = a @ b
        return {"loss": out.square().mean(), "out": out}

    return target, reference
