"""Two norms with another eps, of numbers so large that it did not matter: every tap is equal bit by bit, so that
nobody is accused; that the programs differ all the same is a hazard with its place. Of numbers near 1 it is a bug."""

import linecache
from pathlib import Path
from typing import Any

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


def says(variant: str, verdict: Any) -> None:
    if variant != "large":
        return
    assert verdict.grade == "MATCH", verdict.explain()
    places = [hazard.place.source for hazard in verdict.hazards if hazard.kind == "latent_difference"]
    texts = [linecache.getline(str(Path(__file__)), int(place.rpartition(":")[2])) for place in places]
    assert any("eps" in text for text in texts), verdict.explain()


@scenario(
    "latent eps",
    "another eps where it does not matter, and where it does",
    size=(4, 16),
    says=says,
    large=TYPE_I,
    small=TYPE_II,
    suspect={"small": r"eps"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, size, 16, dtype=dtype) * (1e6 if variant == "large" else 1.0)
    goal = normal(seed + 1, size, 16, dtype=dtype)

    def run(eps: float) -> dict[str, Tensor]:
        out = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        return {"loss": (out - goal).square().mean(), "out": out}

    return lambda: run(1e-5), lambda: run(1e-6)
