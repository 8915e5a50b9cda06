"""A layer that was left out of training: it does not require a gradient, or the optimizer was not given it. Its
gradient arrives on one side only, or its weight stays where it was."""

import copy

import torch
from models import MLP, gradients, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "frozen layer",
    "a layer left out of training",
    size=(6, 24),
    trained=TYPE_I,
    frozen=TYPE_II,
    not_in_optimizer=TYPE_II,
    cause={"frozen": "STRUCTURE", "not_in_optimizer": "STRUCTURE|MATHEMATICS"},  # An update that is there, and zero.
    suspect={"frozen": r"fc_1", "not_in_optimizer": r"fc_1|step\(\)"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    other = copy.deepcopy(one)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)
    if variant == "frozen":
        one.fc_1.weight.requires_grad_(False)
    mine = list(one.fc_2.parameters()) if variant == "not_in_optimizer" else list(one.parameters())

    def step(model: MLP, parameters: list[Tensor]) -> dict[str, Tensor]:
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), **(gradients(model) if variant == "frozen" else weights(model))}

    return lambda: step(one, mine), lambda: step(other, list(other.parameters()))
