"""A distance whose root is zero in some places: where() picks a zero there, but the gradient of the root beside it is
infinite, and infinity times zero is NaN. A second where() before the root keeps the gradient finite."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "safe root",
    "the gradient of a root at zero, behind a where()",
    size=(8, 32),
    safe=TYPE_I,
    not_a_number=TYPE_II,
    cause={"not_a_number": "RANGE|MATHEMATICS"},  # In exact arithmetic it is no number, either.
    suspect={"not_a_number": r"sqrt|where"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, size, 4, dtype=dtype)
    x[:2] = 0
    x.requires_grad_()

    def taps(distance: Tensor) -> dict[str, Tensor]:
        loss = distance.mean()
        (grad,) = torch.autograd.grad(loss, [x])
        return {"loss": loss.detach(), "grad:x": grad}

    def target() -> dict[str, Tensor]:
        square = x.square().sum(-1)
        inside = square if variant == "not_a_number" else torch.where(square > 0, square, torch.full_like(square, 4.0))
        return taps(torch.where(square > 0, inside.sqrt(), torch.zeros_like(square)))

    def reference() -> dict[str, Tensor]:
        square = x.square().sum(-1)
        positive = square > 0
        inside = torch.where(positive, square, torch.ones_like(square))
        return taps(inside.sqrt() * positive)

    return target, reference
