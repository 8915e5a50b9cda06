"""transformers 29285: rotary angles formed in bf16, where positions beyond 256 and most angles are not held, against
angles formed in fp32 and rounded once they are cosines and sines."""

from typing import Any

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

HALF, FIRST = 8, 240


def says(variant: str, verdict: Any) -> None:
    if variant == "bf16_angles":
        assert verdict.cause == "PRECISION_POLICY" and "bf16" in verdict.sentence, verdict.explain()
        assert "d_rope_angles.py" in verdict.sentence, verdict.explain()


@scenario(
    "rotary angles",
    "angles in bf16 (transformers 29285)",
    size=(8, 32),
    says=says,
    bf16_angles=TYPE_I,
    base=TYPE_II,
    cause={"bf16_angles": "PRECISION_POLICY"},
    suspect={"base": r"base \*\*"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.bfloat16 if dtype == torch.float32 else dtype
    x = normal(seed, size, 2 * HALF, dtype=dtype).to(torch.bfloat16).to(short)

    def rotated(angles: torch.dtype, base: float) -> dict[str, torch.Tensor]:
        inverse = 1.0 / base ** (torch.arange(0, HALF, dtype=dtype) / HALF)
        positions = torch.arange(FIRST, FIRST + size, dtype=dtype)
        angle = positions.to(angles)[:, None] * inverse.to(angles)
        cos, sin = angle.cos().to(short), angle.sin().to(short)
        a, b = x[:, :HALF], x[:, HALF:]
        return {"rotated": torch.cat([a * cos - b * sin, b * cos + a * sin], -1)}

    wrong = 9000.0 if variant == "base" else 10000.0
    return lambda: rotated(short if variant == "bf16_angles" else dtype, wrong), lambda: rotated(dtype, 10000.0)
