"""OLMo-core 828: a block that recomputes its activations in backward by itself draws another dropout mask for its
gradient than for its result."""

from typing import Any

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

RATE = 0.25


class Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, keep_state: bool) -> torch.Tensor:
        ctx.state = torch.get_rng_state() if keep_state else None
        ctx.save_for_backward(x, w)
        return F.dropout(torch.tanh(x @ w), RATE)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            if ctx.state is not None:
                torch.set_rng_state(ctx.state)
            leaves = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            again = F.dropout(torch.tanh(leaves[0] @ leaves[1]), RATE)
        return *torch.autograd.grad(again, leaves, grad), None


@scenario(
    "OLMo-core 828",
    "recomputation draws a new dropout mask",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"Recomputed\.apply"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, w = normal(seed, size, 16, dtype=dtype), normal(seed + 1, 16, 16, dtype=dtype) / 4

    def target() -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        weight = w.clone().requires_grad_()
        loss = Recomputed.apply(x, weight, variant == "fixed").square().mean()
        loss.backward()
        return {"loss": loss.detach(), "grad:w": weight.grad}

    def reference() -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        weight = w.clone().requires_grad_()
        loss = F.dropout(torch.tanh(x @ weight), RATE).square().mean()
        loss.backward()
        return {"loss": loss.detach(), "grad:w": weight.grad}

    return target, reference
