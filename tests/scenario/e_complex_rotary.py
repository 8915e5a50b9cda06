"""Rotary embedding by products of complex numbers, against real ones in pairs. The conjugate turns the wrong way."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

HEAD = 16


@scenario(
    "complex rotary",
    "rotary embedding by complex numbers",
    size=(6, 32),
    complex=TYPE_I,
    cached=TYPE_I,
    conjugate=TYPE_II,
    suspect={"conjugate": r"turn|cos|sin"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, goal = normal(seed, 2, size, HEAD, dtype=dtype), normal(seed + 1, 2, size, HEAD, dtype=dtype)
    weight = (normal(seed + 2, HEAD, HEAD, dtype=dtype) / HEAD**0.5).requires_grad_()

    def angles() -> Tensor:
        rates = 1.0 / 10000.0 ** (torch.arange(0, HEAD, 2, dtype=dtype) / HEAD)
        return torch.arange(size, dtype=dtype)[:, None] * rates

    table = torch.polar(torch.ones(size, HEAD // 2, dtype=dtype), angles())

    def taps(turned: Tensor) -> dict[str, Tensor]:
        loss = (turned - goal).square().mean()
        (grad,) = torch.autograd.grad(loss, [weight])
        return {"loss": loss.detach(), "grad:weight": grad}

    def target() -> dict[str, Tensor]:
        turn = table if variant == "cached" else torch.polar(torch.ones_like(angles()), angles())
        if variant == "conjugate":
            turn = turn.conj()
        pairs = torch.view_as_complex((x @ weight).unflatten(-1, (-1, 2)))
        return taps(torch.view_as_real(pairs * turn).flatten(-2))

    def reference() -> dict[str, Tensor]:
        cos, sin = angles().cos(), angles().sin()
        even, odd = (x @ weight).unflatten(-1, (-1, 2)).unbind(-1)
        return taps(torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2))

    return target, reference
