"""Halves that no rounding made: an index of the nearest pixel, a code of a quantiser whose step is a power of two. A
rule that sends them elsewhere reads other pixels and gives other codes: it is no rounding."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "exact halves",
    "halves that no rounding made go where the rule sends them",
    size=(16, 64),
    reciprocal=TYPE_I,
    pixels=TYPE_II,
    codes=TYPE_II,
    suspect={"pixels": r"floor|round", "codes": r"floor|round"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    if variant == "pixels":
        row, at = normal(seed, 2 * size, dtype=dtype), torch.arange(size).to(dtype)
        return (
            lambda: {"pixels": row[torch.floor((at + 0.5) * 2 - 0.5 + 0.5).clamp(max=2 * size - 1).long()]},
            lambda: {"pixels": row[torch.round((at + 0.5) * 2 - 0.5).clamp(max=2 * size - 1).long()]},
        )
    x = torch.randint(-40, 40, (4, size), generator=torch.Generator().manual_seed(seed)).to(dtype) / 16
    weight = normal(seed + 1, size, 3, dtype=dtype)

    def target() -> dict[str, Tensor]:
        code = torch.floor(x / 0.125 + 0.5) if variant == "codes" else torch.round(x * 8)
        return {"out": (code / 8) @ weight}

    return target, lambda: {"out": (torch.round(x / 0.125) / 8) @ weight}
