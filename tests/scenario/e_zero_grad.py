"""Gradients of the step before that were not set to zero: the backward pass adds to them. They are a leaf that the
other program does not have. Gradients that were set to zero, or to None, are the same."""

import copy

import torch
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "zero_grad",
    "gradients of the step before that were not set to zero",
    size=(6, 24),
    zero=TYPE_I,
    forgotten=TYPE_II,
    cause={"forgotten": "MATHEMATICS|LEAF_MISMATCH"},  # A leaf that should be zero is both.
    suspect={"forgotten": r"add_|backward\(\)|leaf grad"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    other = copy.deepcopy(one)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)
    before = normal(seed + 2, size, 16, dtype=dtype)

    def step(model: MLP, x: Tensor) -> dict[str, Tensor]:
        loss = (model(x) - y).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    step(one, before)
    if variant == "zero":
        one.zero_grad(set_to_none=False)
    return lambda: step(one, x), lambda: step(other, x)
