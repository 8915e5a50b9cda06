"""pytorch 136181: a compiler leaves out a round trip through bf16 that the eager program makes: 104.64 for 104.5."""

import torch
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario("pytorch 136181", "an elided round trip through bf16", size=(8, 64), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.bfloat16 if dtype == torch.float32 else dtype
    x, y = (100 + normal(seed + i, size, dtype=dtype) for i in range(2))
    x, y = x.to(short), y.to(short)

    def eager() -> dict[str, torch.Tensor]:
        total = x.to(dtype) + y.to(dtype) * 0.045
        return {"out": total.to(short).to(dtype) - 1}

    def compiled() -> dict[str, torch.Tensor]:
        return {"out": x.to(dtype) + y.to(dtype) * 0.045 - 1}

    return compiled, eager
