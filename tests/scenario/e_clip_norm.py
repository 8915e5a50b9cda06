"""Clipping of gradients by their common norm, by the framework and by hand. The framework adds 1e-6 to the norm;
without it the factor is off by some units in the last place, each time in the same direction."""

import copy

import torch
from models import MLP, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

LIMIT = 0.1


@scenario(
    "clipped norm",
    "clipping by hand against clip_grad_norm_",
    size=(6, 24),
    by_hand=TYPE_I,
    one_vector=TYPE_I,
    no_eps=TYPE_II,
    suspect={"no_eps": r"clip_grad_norm_|factor|LIMIT"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    other = copy.deepcopy(one)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def gradients(model: MLP) -> dict[str, Tensor]:
        loss = (model(x) - y).square().mean()
        loss.backward()
        return {f"grad:{name}": p.grad for name, p in model.named_parameters()}

    def target() -> dict[str, Tensor]:
        grads = gradients(one)
        if variant == "one_vector":
            norm = torch.cat([g.flatten() for g in grads.values()]).norm()
        else:
            norm = torch.stack([g.square().sum() for g in grads.values()]).sum().sqrt()
        factor = (LIMIT / (norm + (0 if variant == "no_eps" else 1e-6))).clamp(max=1.0)
        return {name: g * factor for name, g in grads.items()} | {"norm": norm}

    def reference() -> dict[str, Tensor]:
        grads = gradients(other)
        norm = torch.nn.utils.clip_grad_norm_(other.parameters(), LIMIT)
        return grads | {"norm": norm}

    return target, reference
