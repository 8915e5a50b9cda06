"""A7. Dot products and large sums that are accumulated in fp16, term by term, against fp32; and one that drops
a term."""

from typing import Any

import torch
from models import hazards, normal
from scenario import TYPE_I, TYPE_II, Program, scenario

TERMS = {"dot": 64, "sum": 4096, "dropped_term": 64}


def says(variant: str, verdict: Any) -> None:
    if variant == "dropped_term":
        return
    assert verdict.contributors[0].place.format == "fp16", verdict.explain()
    assert any("accumulate in fp32" in line and "times" in line for line in verdict.advice), verdict.explain()
    if variant == "sum":
        stagnating = hazards(verdict)["stagnation"]
        assert stagnating.place.format == "fp16" and stagnating.remedy == "accumulate in fp32"


@scenario(
    "A7 fp16 accumulation",
    "dot products and large sums accumulated in fp16",
    size=(1, 8),
    says=says,
    dot=TYPE_I,
    sum=TYPE_I,
    dropped_term=TYPE_II,
    cause={"dot": "PRECISION_POLICY", "sum": "PRECISION_POLICY"},
    suspect={"dropped_term": r"total \+"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    terms = TERMS[variant] + 8 * size
    half = torch.float16 if dtype == torch.float32 else dtype
    # Numbers that fp16 holds, so that the programs are fed the same.
    a, b = (normal(seed + i, terms).abs().half().to(dtype) for i in range(2))

    def target() -> dict[str, torch.Tensor]:
        total = torch.zeros((), dtype=half)
        x, y = a.to(half), b.to(half)
        for i in range(terms - (variant == "dropped_term")):
            total = total + (x[i] if variant == "sum" else x[i] * y[i])
        return {"result": total}

    def reference() -> dict[str, torch.Tensor]:
        return {"result": a.sum() if variant == "sum" else (a * b).sum()}

    return target, reference
