"""transformers 29402: RMS norm that rounds to bf16 before it multiplies by the weight, against one that rounds
after."""

from typing import Any

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario


def says(variant: str, verdict: Any) -> None:
    if variant == "cast_first":
        assert verdict.cause == "PRECISION_POLICY" and "bf16" in verdict.sentence, verdict.explain()


@scenario(
    "RMS norm cast",
    "cast before the weight (transformers 29402)",
    size=(4, 16),
    says=says,
    cast_first=TYPE_I,
    eps_outside=TYPE_II,
    cause={"cast_first": "PRECISION_POLICY"},
    suspect={"eps_outside": r"\+ 1e-3"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.bfloat16 if dtype == torch.float32 else dtype
    x = normal(seed, size, 64, dtype=dtype).to(torch.bfloat16).to(dtype)
    weight = (1 + 0.1 * normal(seed + 1, 64, dtype=dtype)).to(torch.bfloat16).to(dtype)

    def target() -> dict[str, torch.Tensor]:
        wide = x.to(dtype)
        if variant == "eps_outside":
            return {"normalised": (wide / (wide.square().mean(-1, keepdim=True).sqrt() + 1e-3) * weight).to(short)}
        normalised = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-3)
        return {"normalised": weight.to(short) * normalised.to(short)}

    def reference() -> dict[str, torch.Tensor]:
        wide = x.to(dtype)
        normalised = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-3)
        return {"normalised": (weight * normalised).to(short)}

    return target, reference
