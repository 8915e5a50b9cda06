"""Triton 1578: multiply and add, contracted into one operation or not."""

import torch
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario("contraction", "addcmul against multiply, then add (Triton 1578)", size=(100, 1000), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    a, b, c = (normal(seed + i, size, dtype=dtype) for i in range(3))

    def target() -> dict[str, torch.Tensor]:
        out = torch.addcmul(c, a, b, value=0.1)
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, torch.Tensor]:
        out = c + 0.1 * (a * b)
        return {"loss": out.square().mean(), "out": out}

    return target, reference
