"""Leaves with equal content: two zero biases, or two copies of one table. Which of one program's is which of the
other's cannot be told, and every choice must give the same verdict."""

import copy

import torch
from models import gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn


class Pair(nn.Module):
    """Two branches whose weights start as copies; `turned` takes the one where the other belongs."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(12, 8), nn.Linear(12, 8)
        self.right.load_state_dict(self.left.state_dict())
        nn.init.zeros_(self.left.bias)
        nn.init.zeros_(self.right.bias)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.tanh(self.left(a)) + 0.5 * torch.tanh(self.right(b))


@scenario(
    "equal leaves",
    "leaves with equal content",
    size=(4, 16),
    data=TYPE_I,
    tables=TYPE_I,
    data_wrong=TYPE_II,
    branches=TYPE_II,
    suspect={"data_wrong": r"0\.5 \*|\* 0\.50|one\(", "branches": r"right|left"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = Pair().to(dtype)
    other = copy.deepcopy(one)
    a, y = normal(seed, size, 12, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)
    b = a.clone()
    tables = [torch.linspace(0.5, 1.5, 8, dtype=dtype) ** 0.5 for _ in range(2)]

    def taps(model: Pair, out: Tensor) -> dict[str, Tensor]:
        loss = (out - y).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    def target() -> dict[str, Tensor]:
        if variant == "tables":
            return taps(one, one(b, a) * tables[1] + tables[0])
        if variant == "branches":  # The loss is the same, each branch's gradient is the other's.
            return taps(one, 0.5 * torch.tanh(one.left(a)) + torch.tanh(one.right(b)))
        return taps(one, one(b, a) * (1.001 if variant == "data_wrong" else 1.0))

    def reference() -> dict[str, Tensor]:
        out = other(a, b)
        return taps(other, out * tables[0] + tables[1] if variant == "tables" else out)

    return target, reference
