"""The same batch in another order, as another loader deals it: the leaves differ, and the mean does not. A loader that
drops the last row is a bug."""

import copy

import torch
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "shuffled batch",
    "the same batch in another order",
    size=(8, 32),
    shuffled=TYPE_I,
    dropped=TYPE_II,
    cause={"dropped": "MATHEMATICS|LEAF_MISMATCH"},  # Other data are both.
    suspect={"dropped": r"model\(x\)|mean|fc_1| y\)|leaf"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    other = copy.deepcopy(one)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    if variant == "dropped":
        order = order[:-1]
    mine = x[order], y[order]

    def step(model: MLP, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        loss = (model(x) - y).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    return lambda: step(one, *mine), lambda: step(other, x, y)
