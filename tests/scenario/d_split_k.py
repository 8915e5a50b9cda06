"""Split-K whose partial products are stored in bf16 before they are added, against one that keeps them in fp32."""

from typing import Any

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

PARTS = 8


def says(variant: str, verdict: Any) -> None:
    if variant == "bf16_partials":
        assert verdict.cause == "PRECISION_POLICY" and "bf16" in verdict.sentence, verdict.explain()
        assert "d_split_k.py" in verdict.sentence, verdict.explain()


@scenario(
    "bf16 split-K",
    "partial products stored in bf16",
    size=(64, 256),
    says=says,
    bf16_partials=TYPE_I,
    lost_part=TYPE_II,
    cause={"bf16_partials": "PRECISION_POLICY"},
    suspect={"lost_part": r"pairs\[:parts\]|sum\(0\)"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.bfloat16 if dtype == torch.float32 else dtype
    a, b = (normal(seed + i, *shape).bfloat16().to(dtype) for i, shape in enumerate([(8, size), (size, 8)]))

    def product(held: torch.dtype, parts: int) -> dict[str, torch.Tensor]:
        pairs = list(zip(a.chunk(PARTS, 1), b.chunk(PARTS, 0), strict=True))
        partials = torch.stack([(x @ y).to(held) for x, y in pairs[:parts]])
        return {"out": partials.to(dtype).sum(0)}

    parts = PARTS - 1 if variant == "lost_part" else PARTS
    return lambda: product(short if variant == "bf16_partials" else dtype, parts), lambda: product(dtype, PARTS)
