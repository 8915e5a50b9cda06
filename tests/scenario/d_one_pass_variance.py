"""burn 5607: variance as E[x^2] - E[x]^2 at mean 100, against two passes: the same mathematics, ten thousand times the
error. With more than some 200 elements rounding could move it by a tenth, which leaves the question open."""

from typing import Any

import torch
from models import hazards, normal
from scenario import TYPE_I, TYPE_II, Program, scenario


def says(variant: str, verdict: Any) -> None:
    if variant == "one_pass":
        assert verdict.cause == "PRECISION_POLICY" and "d_one_pass_variance.py" in verdict.sentence, verdict.explain()
        assert hazards(verdict)["cancellation"].share == 1


@scenario(
    "one-pass variance",
    "E[x^2] - E[x]^2 (burn 5607)",
    size=(64, 112),
    says=says,
    one_pass=TYPE_I,
    biased=TYPE_II,
    cause={"one_pass": "PRECISION_POLICY"},
    suspect={"biased": r"size - 1"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = 100 + normal(seed, size, dtype=dtype)

    def target() -> dict[str, torch.Tensor]:
        if variant == "biased":
            return {"variance": (x - x.mean()).square().sum() / (size - 1)}
        return {"variance": (x * x).mean() - x.mean() ** 2}

    return target, lambda: {"variance": (x - x.mean()).square().mean()}
