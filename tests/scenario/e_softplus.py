"""softplus as the framework computes it, which takes x itself beyond a threshold, against log(1 + exp(x)) all the way.
At the usual threshold rounding leaves as much out; a small one is another function."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "softplus",
    "softplus with a threshold against log(1 + exp(x))",
    size=(40, 400),
    by_hand=TYPE_I,
    sharper=TYPE_I,
    in_double=TYPE_I,
    low_threshold=TYPE_II,
    suspect={"low_threshold": r"softplus|log1p"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    wide = torch.float64 if variant == "in_double" else dtype
    beta = 3.0 if variant == "sharper" else 1.0
    threshold = 5.0 if variant == "low_threshold" else 20.0
    # From deep inside to far beyond any threshold.
    x = 15 * normal(seed, size, dtype=dtype)

    def taps(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        (gradient,) = torch.autograd.grad(y.square().mean(), x)
        return {"loss": y.detach().square().mean(), "grad": gradient}

    def target() -> dict[str, Tensor]:
        own = x.to(wide).requires_grad_()
        return taps(own, F.softplus(own, beta, threshold))

    def reference() -> dict[str, Tensor]:
        own = x.clone().requires_grad_()
        if variant == "in_double":
            return taps(own, F.softplus(own))
        scaled = beta * own
        return taps(own, (scaled.clamp(min=0) + torch.log1p(torch.exp(-scaled.abs()))) / beta)

    return target, reference
