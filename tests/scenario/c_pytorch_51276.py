"""pytorch 51276: a row of a batched product differs from the product of the row, in fp64 too."""

import torch
from scenario import TYPE_I, Program, scenario


@scenario("pytorch 51276", "batch against slice, fp64", size=(48, 160), dtype=torch.float64, benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    draw = torch.Generator().manual_seed(seed)  # All 53 bits: products of rounder numbers would be exact.
    x, w = (torch.randn(rows, size, generator=draw, dtype=dtype) for rows in (7, size))

    def target() -> dict[str, torch.Tensor]:
        out = (x @ w)[:1]
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, torch.Tensor]:
        out = x[:1] @ w
        return {"loss": out.square().mean(), "out": out}

    return target, reference
