"""pytorch 122260: an exponential's argument lies at the end of fp32's range, and whether its multiply and add are
contracted into one operation decides between a finite number and infinity."""

from typing import Any

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

SCALE = 1.1
LIMIT = 88.7228355  # Halfway between the largest argument of fp32's exponential and the next number.


def says(variant: str, verdict: Any) -> None:
    if variant != "other_scale":
        assert verdict.cause in ("ROUNDING", "PRECISION_POLICY", "RANGE"), verdict.explain()


@scenario(
    "pytorch 122260",
    "contraction decides whether exp overflows",
    size=(16, 64),
    says=says,
    plain=TYPE_I,
    contracted=TYPE_I,
    other_scale=TYPE_II,
    cause={"plain": "RANGE", "contracted": "RANGE"},
    suspect={"other_scale": r"scale \* 0\.9"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    pool = 64 + normal(seed, 4096).abs()
    wide = pool.double() * torch.tensor(SCALE).double()
    shifts = (LIMIT - wide).float()
    rounded_twice, rounded_once = pool * SCALE + shifts, (wide + shifts.double()).float()
    # Where the target's argument is the larger, and so the one that overflows.
    larger = rounded_twice < rounded_once if variant == "contracted" else rounded_twice > rounded_once
    x, shift = pool[larger][:size].to(dtype), shifts[larger][:size].to(dtype)
    scale = torch.tensor(SCALE).to(dtype)

    def plain(factor: torch.Tensor = scale) -> dict[str, torch.Tensor]:
        return {"out": torch.exp(x * factor + shift)}

    def contracted() -> dict[str, torch.Tensor]:
        return {"out": torch.exp((x.double() * scale.double() + shift.double()).to(dtype))}

    if variant == "other_scale":
        return lambda: plain(scale * 0.9), plain
    return (plain, contracted) if variant == "plain" else (contracted, plain)
