"""Constants that were written with as many digits as fp32 holds: 1.44269504 for log2(e), 0.79788456 for sqrt(2 / pi),
1 - 0.9999 in Python for 0.0001. Rounded to fp32 they are what the mathematics says. With fewer digits they are not."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


def exponential(x: Tensor, log_2_e: float) -> Tensor:
    return torch.exp2((x - x.amax(-1, keepdim=True)) * log_2_e)


def gelu(x: Tensor, root: float) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(root * (x + 0.044715 * x**3)))


def average(x: Tensor, decay: float, share: float) -> Tensor:
    total = torch.zeros_like(x[0])
    for row in x:
        total = total * decay + row * share
    return total


@scenario(
    "constants",
    "constants with as many digits as fp32 holds",
    size=(16, 64),
    softmax=TYPE_I,
    gelu=TYPE_I,
    average=TYPE_I,
    softmax_short=TYPE_II,
    gelu_short=TYPE_II,
    average_short=TYPE_II,
    suspect={
        "softmax_short": r"log_2_e|torch\.exp",
        "gelu_short": r"tanh|root|F\.gelu",
        "average_short": r"row \* share|total \* decay",
    },
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, 4, size, dtype=dtype)
    form, _, short = variant.partition("_")

    def target() -> dict[str, Tensor]:
        if form == "softmax":
            weights = exponential(x, 1.44270 if short else 1.44269504)
            out = weights / weights.sum(-1, keepdim=True)
        elif form == "gelu":
            out = gelu(x, 0.79788 if short else 0.79788456)
        else:
            out = average(x, 0.9999, 1.001e-4 if short else 1 - 0.9999)
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, Tensor]:
        if form == "softmax":
            weights = torch.exp(x - x.amax(-1, keepdim=True))
            out = weights / weights.sum(-1, keepdim=True)
        elif form == "gelu":
            out = F.gelu(x, approximate="tanh")
        else:
            out = average(x, 0.9999, 1e-4)
        return {"loss": out.square().mean(), "out": out}

    return target, reference
