"""Rounding to a grid by floor(x + 0.5) and by round(x): they part at ties alone, where a quotient that itself was
rounded may lie on either side. floor(x) is another grid."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

STEP = 0.1


@scenario(
    "round half",
    "floor(x + 0.5) against round(x)",
    size=(16, 64),
    no_ties=TYPE_I,
    ties=TYPE_I,
    floor=TYPE_II,
    suspect={"floor": r"torch\.floor|torch\.round"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, 4, size, dtype=dtype)
    weight = normal(seed + 1, size, 3, dtype=dtype)
    if variant == "ties":
        x = ((x * 10).round() + 0.5) * STEP

    def target() -> dict[str, Tensor]:
        code = torch.floor(x / STEP) if variant == "floor" else torch.floor(x / STEP + 0.5)
        return {"out": (code * STEP) @ weight, "loss": (code * STEP).square().mean()}

    def reference() -> dict[str, Tensor]:
        code = torch.round(x / STEP)
        return {"out": (code * STEP) @ weight, "loss": (code * STEP).square().mean()}

    return target, reference
