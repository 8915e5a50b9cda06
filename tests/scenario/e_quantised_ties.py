"""Quantisation to int8 by a division and by a product with the reciprocal. Some numbers lie half a step between two
codes, where the rounding of quotient or product decides. A scale of the wrong axis is a bug."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "quantised ties",
    "ties of int8 quantisation, by division or by reciprocal",
    size=(8, 32),
    reciprocal=TYPE_I,
    stored=TYPE_I,
    wrong_axis=TYPE_II,
    suspect={"wrong_axis": r"amax|scale"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    draw = torch.Generator().manual_seed(seed)
    largest = normal(seed + 1, size, 1, dtype=dtype).abs() + 1
    x = (torch.randint(-127, 127, (size, size), generator=draw) + 0.5) * largest / 127
    x[:, 0] = largest[:, 0]  # So that the scale is largest / 127.
    y = normal(seed + 2, size, 4, dtype=dtype)

    def quantised(by_reciprocal: bool) -> Tensor:
        scale = x.abs().amax(0 if by_reciprocal and variant == "wrong_axis" else 1, keepdim=True) / 127
        code = torch.round(x * (1 / scale) if by_reciprocal else x / scale).clamp(-128, 127)
        if variant == "stored":
            code = code.to(torch.int8).to(x.dtype)
        return code * scale

    def run(by_reciprocal: bool) -> dict[str, Tensor]:
        weight = quantised(by_reciprocal)
        return {"weight": weight, "out": weight @ y}

    return lambda: run(True), lambda: run(False)
