"""Liger-Kernel 376: the backward of RMSNorm writes its result over the incoming gradient, which the residual branch
still needs."""

from typing import Any

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

EPS = 1e-6


class InPlaceRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, in_place: bool) -> torch.Tensor:
        rstd = (x.square().mean(-1, keepdim=True) + EPS).rsqrt()
        ctx.save_for_backward(x, rstd)
        ctx.in_place = in_place
        return x * rstd

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        x, rstd = ctx.saved_tensors
        y = x * rstd
        result = rstd * (grad - y * (grad * y).mean(-1, keepdim=True))
        return (grad.copy_(result) if ctx.in_place else result), None


@scenario(
    "Liger-Kernel 376",
    "in-place RMSNorm backward",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"InPlaceRMSNorm"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, w = normal(seed, 4, size, dtype=dtype), normal(seed + 1, 4, size, dtype=dtype)

    def target() -> dict[str, torch.Tensor]:
        leaf = x.clone().requires_grad_()
        loss = ((leaf + InPlaceRMSNorm.apply(leaf, variant == "bug")) * w).sum()
        loss.backward()
        return {"loss": loss.detach(), "grad:x": leaf.grad}

    def reference() -> dict[str, torch.Tensor]:
        leaf = x.clone().requires_grad_()
        normed = leaf * (leaf.square().mean(-1, keepdim=True) + EPS).rsqrt()
        loss = ((leaf + normed) * w).sum()
        loss.backward()
        return {"loss": loss.detach(), "grad:x": leaf.grad}

    return target, reference
