"""transformers 27114: a causal mask and the padding masks of keys and queries are added; the smallest number of the
format twice is minus infinity, and a row of nothing else becomes NaN in softmax. The smallest of all is the fix."""

from typing import Any

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

WIDTH = 8


def says(variant: str, verdict: Any) -> None:
    if variant == "bug":
        assert verdict.cause == "RANGE" and verdict.suspect.op.startswith("aten::add"), verdict.explain()


@scenario(
    "transformers 27114",
    "min + min = -inf",
    size=(4, 16),
    says=says,
    bug=TYPE_II,
    fixed=TYPE_I,
    cause={"bug": "RANGE"},
    suspect={"bug": r"add.*masks"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q, k, v = (normal(seed + i, size, WIDTH, dtype=dtype) for i in range(3))
    lowest = torch.finfo(torch.float32).min
    causal = torch.full((size, size), lowest, dtype=dtype).triu(1)
    padding = torch.zeros(size, dtype=dtype)
    padding[: size // 2] = lowest  # Padded on the left: the first rows see padding alone.

    masks = [causal, padding.expand(size, size), padding.unsqueeze(1).expand(size, size)]

    def attention(mask: torch.Tensor) -> dict[str, torch.Tensor]:
        out = torch.softmax((q @ k.T) * WIDTH**-0.5 + mask, -1) @ v
        out = out if variant == "bug" else out[size // 2 :]  # Padded queries count nowhere, unless they are NaN.
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, torch.Tensor]:
        if variant == "bug":
            return attention(masks[0] + masks[1] + masks[2])
        return attention(torch.minimum(torch.minimum(masks[0], masks[1]), masks[2]))

    def reference() -> dict[str, torch.Tensor]:
        masked = (masks[0] < 0) | (masks[1] < 0) | (masks[2] < 0)
        return attention(torch.where(masked, lowest, torch.zeros((), dtype=dtype)))

    return target, reference
