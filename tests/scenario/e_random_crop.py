"""Random crops, by slices at drawn numbers or by an index of all of them. A range that leaves out the last place draws
from another distribution, though nearly all numbers are the same."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

BATCH = 64


@scenario(
    "random crop",
    "random crops with another range",
    size=(8, 16),
    index=TYPE_I,
    short=TYPE_II,
    suspect={"short": r"randint"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, BATCH, 2, size, dtype=dtype)
    weight = normal(seed + 1, 3, 2, 3, dtype=dtype)
    width = size // 2

    def taps(crops: Tensor) -> dict[str, Tensor]:
        out = torch.tanh(F.conv1d(crops, weight))
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, Tensor]:
        start = torch.randint(0, size - width + (0 if variant == "short" else 1), (BATCH,))
        index = start[:, None] + torch.arange(width)
        return taps(x.gather(2, index[:, None].expand(-1, 2, -1)))

    def reference() -> dict[str, Tensor]:
        start = torch.randint(0, size - width + 1, (BATCH,))
        rows = torch.arange(BATCH)[:, None, None]
        return taps(x[rows, torch.arange(2)[:, None], (start[:, None] + torch.arange(width))[:, None]])

    return target, reference
