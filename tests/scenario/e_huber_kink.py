"""A Huber loss by hand, some differences exactly where its two forms meet, against the framework's. Both forms have
the same value and the same slope there. Without the half in the linear form the loss jumps."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "Huber kink",
    "a Huber loss where its two forms meet",
    size=(16, 64),
    where=TYPE_I,
    clamped=TYPE_I,
    no_half=TYPE_II,
    suspect={"no_half": r"torch\.where|smooth_l1|abs"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    goal = (normal(seed, size, 8, dtype=dtype) * 4).round() / 4
    x = goal + (normal(seed + 1, size, 8, dtype=dtype) * 4).round() / 4
    x.requires_grad_()

    def taps(loss: Tensor) -> dict[str, Tensor]:
        (grad,) = torch.autograd.grad(loss, [x])
        return {"loss": loss.detach(), "grad:x": grad}

    def target() -> dict[str, Tensor]:
        off = (x - goal).abs()
        if variant == "clamped":
            near = off.clamp(max=1.0)
            return taps((0.5 * near * near + (off - near)).mean())
        return taps(torch.where(off < 1, 0.5 * off * off, off - (0 if variant == "no_half" else 0.5)).mean())

    return target, lambda: taps(F.smooth_l1_loss(x, goal))
