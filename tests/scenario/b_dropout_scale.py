"""Dropout that keeps 1 - p of the values but does not divide by it."""

import copy

import torch
import torch.nn.functional as F
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario

P = 0.25


@scenario(
    "dropout scale",
    "dropout without 1/(1-p)",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"div.*1 - P"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    mine = MLP(16).to(dtype)
    theirs = copy.deepcopy(mine)
    x = normal(seed, size, 16, dtype=dtype)
    keep = (normal(seed + 1, size, 32) > -0.6745).to(dtype)  # The lower quartile is dropped.

    def train(model: MLP, divide: bool) -> dict[str, torch.Tensor]:
        hidden = F.relu(model.fc_1(x)) * keep
        loss = model.fc_2(hidden / (1 - P) if divide else hidden).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    return lambda: train(mine, variant == "fixed"), lambda: train(theirs, True)
