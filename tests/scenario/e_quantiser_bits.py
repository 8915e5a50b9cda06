"""A quantiser with 7 bits where 8 are meant, beside a floor that both programs have: a grid more must not excuse
another grid that is wrong."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn


@scenario(
    "quantiser bits",
    "7 bits for 8, beside a floor",
    size=(8, 32),
    right=TYPE_I,
    seven=TYPE_II,
    suspect={"seven": r"largest|/ scale|torch\.round|amax|code"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, 4, size, dtype=dtype)
    weight = normal(seed + 1, size, size, dtype=dtype)
    table = nn.Embedding(16, size).to(dtype)
    time = torch.rand(4, generator=torch.Generator().manual_seed(seed)).to(dtype) * 16

    def quantised(w: Tensor, bits: int) -> Tensor:
        largest = 2 ** (bits - 1) - 1
        scale = w.abs().amax() / largest
        code = torch.round(w / scale).clamp(-largest, largest)
        return code * scale

    def target() -> dict[str, Tensor]:
        low = torch.floor(time)
        out = (x + table(low.long())) @ quantised(weight, 7 if variant == "seven" else 8)
        return {"loss": out.square().mean(), "out": out + (time - low)[:, None]}

    def reference() -> dict[str, Tensor]:
        out = (x + table(time.long())) @ quantised(weight, 8)
        return {"loss": out.square().mean(), "out": out + (time - time.trunc())[:, None]}

    return target, reference
