"""Primus 1046: of 32 micro-batches the buffer keeps one, as each overwrites what should be added."""

import copy

import torch
from models import MLP, normal
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "Primus 1046",
    "one of 32 micro-batches accumulated",
    size=(32, 64),
    bug=TYPE_II,
    fixed=TYPE_I,
    unplaced={"bug": "The copied gradient is right for its part; what is wrong are the additions that are not made."},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(8, 4).to(dtype)
    many = copy.deepcopy(one)
    x, y = normal(seed, size, 8, dtype=dtype), normal(seed + 1, size, 4, dtype=dtype)
    names = [name for name, _ in one.named_parameters()]

    def target() -> dict[str, torch.Tensor]:
        buffers: list[torch.Tensor] = []
        loss = torch.zeros((), dtype=dtype)
        for part_x, part_y in zip(x.tensor_split(32), y.tensor_split(32), strict=True):
            part = (many(part_x) - part_y).square().sum() / y.numel()
            grads = torch.autograd.grad(part, list(many.parameters()))
            buffers = buffers or [torch.zeros_like(g) for g in grads]
            for buffer, grad in zip(buffers, grads, strict=True):
                if variant == "bug":
                    buffer.copy_(grad)
                else:
                    buffer.add_(grad)
            loss = loss + part.detach()
        return {"loss": loss, **{f"grad:{n}": b for n, b in zip(names, buffers, strict=True)}}

    def reference() -> dict[str, torch.Tensor]:
        loss = (one(x) - y).square().mean()
        grads = torch.autograd.grad(loss, list(one.parameters()))
        return {"loss": loss.detach(), **{f"grad:{n}": g for n, g in zip(names, grads, strict=True)}}

    return target, reference
