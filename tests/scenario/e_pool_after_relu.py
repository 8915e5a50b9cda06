"""Max-pooling after relu, where many windows hold zeros only: by the framework, which gives one of them the gradient,
and by amax, which spreads it. relu lets none of it through. An average is another pooling."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "pool after relu",
    "max-pooling of zeros by the framework and by amax",
    size=(4, 10),
    amax=TYPE_I,
    max=TYPE_I,
    average=TYPE_II,
    suspect={"average": r"windows|max_pool2d"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, 2, 3, 2 * size, 2 * size, dtype=dtype)
    weight = (normal(seed + 1, 4, 3, 3, 3, dtype=dtype) / 5).requires_grad_()
    goal = normal(seed + 2, 2, 4, size, size, dtype=dtype)

    def taps(out: Tensor) -> dict[str, Tensor]:
        loss = (out - goal).square().mean()
        (grad,) = torch.autograd.grad(loss, [weight])
        return {"loss": loss.detach(), "grad:weight": grad}

    def hidden() -> Tensor:
        return torch.relu(F.conv2d(x, weight, padding=1))

    def target() -> dict[str, Tensor]:
        windows = hidden().view(2, 4, size, 2, size, 2).transpose(3, 4).flatten(4)
        if variant == "average":
            return taps(windows.mean(-1))
        return taps(windows.amax(-1) if variant == "amax" else windows.max(-1).values)

    return target, lambda: taps(F.max_pool2d(hidden(), 2))
