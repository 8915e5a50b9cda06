"""Kahan's compensated sum with the wrong sign of its compensation. In exact arithmetic the compensation is zero, so
that the mathematics are the same and each rounding is legal; but the error, which should shrink, grows. This is a
hazard, and it names the operation."""

import linecache
from pathlib import Path
from typing import Any

import torch
from models import normal
from scenario import TYPE_I, Program, scenario
from torch import Tensor


def says(variant: str, verdict: Any) -> None:
    lines = [h.place.source.rpartition(":")[2] for h in verdict.hazards if "e_compensation" in h.place.source]
    texts = [linecache.getline(str(Path(__file__)), int(line)) for line in lines]
    assert any("lost" in text for text in texts) == (variant == "wrong"), verdict.explain()


@scenario(
    "compensation sign",
    "a compensated sum with the wrong sign",
    size=(32, 64),
    says=says,
    right=TYPE_I,
    wrong=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    terms = normal(seed, size, 8, dtype=dtype)

    def compensated(sign: float) -> dict[str, Tensor]:
        total, lost = torch.zeros_like(terms[0]), torch.zeros_like(terms[0])
        for term in terms:
            corrected = term - lost if sign > 0 else term + lost
            new = total + corrected
            lost = (new - total) - corrected
            total = new
        return {"total": total}

    return lambda: compensated(-1.0 if variant == "wrong" else 1.0), lambda: compensated(1.0)
