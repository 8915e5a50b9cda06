"""An embedding scaled by sqrt(3072) that bf16 holds as 55.5: a whole model off by 0.13 %, by one cast of a constant."""

import math
from typing import Any

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario


def says(variant: str, verdict: Any) -> None:
    if variant == "bf16_constant":
        assert verdict.cause == "PRECISION_POLICY" and "bf16" in verdict.sentence, verdict.explain()


@scenario(
    "embedding scale",
    "sqrt(3072) in bf16 = 55.5",
    size=(4, 16),
    says=says,
    bf16_constant=TYPE_I,
    wrong_width=TYPE_II,
    cause={"bf16_constant": "PRECISION_POLICY"},
    suspect={"wrong_width": r"x \* normalizer"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.bfloat16 if dtype == torch.float32 else dtype
    x = normal(seed, size, 32, dtype=dtype)

    def scaled(kind: torch.dtype, width: int) -> dict[str, torch.Tensor]:
        normalizer = torch.tensor(math.sqrt(width), dtype=dtype).to(kind)
        return {"embedded": x * normalizer}

    width = 2048 if variant == "wrong_width" else 3072
    return lambda: scaled(short if variant == "bf16_constant" else dtype, width), lambda: scaled(dtype, 3072)
