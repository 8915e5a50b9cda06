"""Weights in int8 that were dequantised when the model was loaded, against a model that does it in each forward pass.
A zero point that is off by one is a bug."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "dequantised at load",
    "int8 weights dequantised when the model was loaded",
    size=(8, 32),
    loaded=TYPE_I,
    scale_after=TYPE_I,
    zero_point=TYPE_II,
    cause={"zero_point": "MATHEMATICS|LEAF_MISMATCH"},  # Wrong weights are both.
    suspect={"zero_point": r"F\.linear|zero"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    draw = torch.Generator().manual_seed(seed)
    code = torch.randint(-128, 128, (size, 16), generator=draw, dtype=torch.int8)
    zero = torch.randint(-8, 8, (size, 1), generator=draw, dtype=torch.int8)
    scale = (normal(seed + 1, size, 1, dtype=dtype).abs() + 0.1) / 127
    x = normal(seed + 2, 6, 16, dtype=dtype)
    loaded = (code.to(dtype) - zero.to(dtype) - float(variant == "zero_point")) * scale

    def taps(out: Tensor) -> dict[str, Tensor]:
        out = F.silu(out)
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, Tensor]:
        if variant == "scale_after":
            return taps(F.linear(x, code.to(dtype) - zero.to(dtype)) * scale[:, 0])
        return taps(F.linear(x, loaded))

    return target, lambda: taps(F.linear(x, (code.to(dtype) - zero.to(dtype)) * scale))
