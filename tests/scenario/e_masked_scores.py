"""Scores that hold -inf where they are masked, and elsewhere a wrong finite part: infinities that agree must not hide
what stands beside them. A mask of finfo.min, beside which every finite number is small, must not either."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

HEAD = 16


@scenario(
    "masked scores",
    "scores with -inf or finfo.min in masked places, wrong in the others",
    size=(6, 24),
    infinite=TYPE_I,
    finite=TYPE_I,
    infinite_unscaled=TYPE_II,
    finite_unscaled=TYPE_II,
    infinite_slope=TYPE_II,
    finite_slope=TYPE_II,
    suspect={
        "infinite_unscaled": r"q @ k|scale",
        "finite_unscaled": r"q @ k|scale",
        "infinite_slope": r"slope",
        "finite_slope": r"slope",
    },
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q, k = normal(seed, 2, size, HEAD, dtype=dtype), normal(seed + 1, 2, size, HEAD, dtype=dtype)
    kind, _, bug = variant.partition("_")
    future = torch.ones(size, size, dtype=torch.bool).triu(1)
    low = -float("inf") if kind == "infinite" else torch.finfo(torch.float32).min
    distance = (torch.arange(size)[None] - torch.arange(size)[:, None]).to(dtype)

    def target() -> dict[str, Tensor]:
        scale = HEAD**-0.5 * (1 + 2**-10 if bug == "unscaled" else 1)
        slope = 0.0625 * (1.001 if bug == "slope" else 1)
        scores = q @ (k * scale).transpose(-2, -1) + distance * slope
        return {"scores": scores.masked_fill(future, low)}

    def reference() -> dict[str, Tensor]:
        scale, slope = HEAD**-0.5, 0.0625
        scores = q @ k.transpose(-2, -1) * scale + slope * distance
        mask = torch.zeros(size, size, dtype=dtype).masked_fill(future, low)
        return {"scores": torch.where(future, mask, scores)}

    return target, reference
