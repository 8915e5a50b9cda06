"""Stochastic depth: whole samples skip a branch, by a drawn factor or by a drawn choice. With another probability, and
the scale that belongs to it, the expectation is the same and the distribution is not."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

KEEP = 0.75


@scenario(
    "drop path",
    "stochastic depth with another probability",
    size=(32, 64),
    where=TYPE_I,
    probability=TYPE_II,
    suspect={"probability": r"bernoulli|keep"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, weight = normal(seed, size, 8, dtype=dtype), normal(seed + 1, 8, 8, dtype=dtype)

    def taps(out: Tensor) -> dict[str, Tensor]:
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, Tensor]:
        keep = 0.7 if variant == "probability" else KEEP
        kept = torch.empty(size, 1, dtype=dtype).bernoulli_(keep) > 0
        return taps(x + torch.where(kept, torch.tanh(x @ weight) / keep, torch.zeros_like(x)))

    def reference() -> dict[str, Tensor]:
        kept = torch.empty(size, 1, dtype=dtype).bernoulli_(KEEP)
        return taps(x + torch.tanh(x @ weight) * (kept / KEEP))

    return target, reference
