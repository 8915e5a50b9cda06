"""A learning rate by cosine decay: in Python's numbers, or as a tensor that is read with .item(). The step that is one
too far in the schedule is a bug."""

import copy
import math

import torch
from models import MLP, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

BASE, STEPS = 0.05, 97


@scenario(
    "Python schedule",
    "a learning rate from Python against one from a tensor",
    size=(6, 24),
    item=TYPE_I,
    tensor=TYPE_I,
    one_ahead=TYPE_II,
    suspect={"one_ahead": r"rate|step \+ 1"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    other = copy.deepcopy(one)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)
    step = 31 + seed % 20

    def train(model: MLP, rate: float | Tensor) -> dict[str, Tensor]:
        loss = (model(x) - y).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= rate * p.grad
        return {"loss": loss.detach(), **weights(model)}

    def target() -> dict[str, Tensor]:
        done = torch.tensor(step + 1 if variant == "one_ahead" else step, dtype=dtype)
        rate = 0.5 * BASE * (1 + torch.cos(math.pi * done / STEPS))
        return train(one, rate.item() if variant == "item" else rate)

    def reference() -> dict[str, Tensor]:
        return train(other, 0.5 * BASE * (1 + math.cos(math.pi * step / STEPS)))

    return target, reference
