"""An initialisation within the step: the same normal numbers, by a standard deviation in the call or by a factor after
it. With the wrong standard deviation the numbers are another distribution's, though they are drawn alike."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn

STD = 0.02


@scenario(
    "initial deviation",
    "an initialisation with another standard deviation",
    size=(8, 32),
    factor=TYPE_I,
    uniform=TYPE_I,
    wrong_std=TYPE_II,
    wrong_range=TYPE_II,
    suspect={"wrong_std": r"normal_|randn", "wrong_range": r"uniform_|rand"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, 4, size, dtype=dtype)

    def taps(weight: Tensor) -> dict[str, Tensor]:
        out = torch.tanh(x @ weight.T)
        return {"loss": out.square().mean(), "weight": weight}

    def target() -> dict[str, Tensor]:
        weight = torch.empty(size, size, dtype=dtype)
        if variant in ("uniform", "wrong_range"):
            return taps(nn.init.uniform_(weight, -STD, STD * (1.05 if variant == "wrong_range" else 1)))
        return taps(nn.init.normal_(weight, 0.0, STD / (2**0.5 if variant == "wrong_std" else 1)))

    def reference() -> dict[str, Tensor]:
        if variant in ("uniform", "wrong_range"):
            return taps(torch.rand(size, size, dtype=dtype) * (2 * STD) - STD)
        return taps(torch.randn(size, size, dtype=dtype) * STD)

    return target, reference
