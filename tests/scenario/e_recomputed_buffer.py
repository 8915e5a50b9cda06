"""A buffer that another formula computed: 1 / sqrt(n) by a square root and a division, against the same in fp64,
rounded once. The two lie at most one unit in the last place apart, which is what legal roundings of one number do. A
buffer that starts at another n is a bug."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn


class Scaled(nn.Module):
    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.scale)


@scenario(
    "recomputed buffer",
    "a buffer computed by another formula, one unit in the last place apart",
    size=(32, 128),
    one_ulp=TYPE_I,
    shifted=TYPE_II,
    cause={"shifted": "LEAF_MISMATCH"},
    suspect={"shifted": r"scale"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, 4, size, dtype=dtype)
    n = torch.arange(3, size + 3, dtype=torch.float64)
    plain = Scaled((n**-0.5).to(dtype))
    mine = Scaled(1 / (n + (1e-3 if variant == "shifted" else 0)).to(dtype).sqrt())

    def run(model: Scaled) -> dict[str, Tensor]:
        out = model(x)
        return {"loss": out.square().mean(), "out": out}

    return lambda: run(mine), lambda: run(plain)
