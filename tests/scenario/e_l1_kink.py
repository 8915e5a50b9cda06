"""An L1 distance at its kink: the student starts as a copy of its teacher, so that the exact differences are zero and
each rounding decides a sign of its own. What follows from the signs is legal either way. A distance that is divided by
another number of elements is a bug."""

import copy

import torch
import torch.nn.functional as F
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


def halves(model: MLP, x: Tensor) -> Tensor:
    """The network with its second product in two parts."""
    hidden, weight = F.relu(model.fc_1(x)), model.fc_2.weight
    half = hidden.shape[1] // 2
    return hidden[:, :half] @ weight[:, :half].T + hidden[:, half:] @ weight[:, half:].T + model.fc_2.bias


@scenario(
    "L1 kink",
    "an L1 distance whose exact differences are zero",
    size=(8, 24),
    some=TYPE_I,
    all=TYPE_I,
    divided=TYPE_II,
    suspect={"divided": r"numel|mean|l1_loss|abs"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    teacher = MLP(16).to(dtype)
    one, other = copy.deepcopy(teacher), copy.deepcopy(teacher)
    x = normal(seed, size, 16, dtype=dtype)
    with torch.no_grad():
        goal = teacher(x)
        if variant != "all":
            goal[size // 2 :] += normal(seed + 1, size - size // 2, 8, dtype=dtype)

    def target() -> dict[str, Tensor]:
        count = goal.numel() - (8 if variant == "divided" else 0)
        loss = (halves(one, x) - goal).abs().sum() / count
        loss.backward()
        return {"loss": loss.detach(), **gradients(one)}

    def reference() -> dict[str, Tensor]:
        loss = F.l1_loss(other(x), goal)
        loss.backward()
        return {"loss": loss.detach(), **gradients(other)}

    return target, reference
