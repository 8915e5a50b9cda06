"""A .detach() that cuts a branch's gradient off. Where another branch still reaches the weights, their gradient is
another function; where none does, it arrives on one side only. A branch whose gradient is exactly zero may be cut."""

import copy

import torch
from models import gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn


class Branches(nn.Module):
    """A trunk with two heads, and a gate beside it; `cut` names what is detached."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.gate = nn.Linear(12, 12), nn.Linear(12, 12)
        self.head, self.side = nn.Linear(12, 4), nn.Linear(12, 4)

    def forward(self, x: Tensor, cut: str = "", share: float = 1.0) -> Tensor:
        hidden, gate = torch.tanh(self.trunk(x)), torch.sigmoid(self.gate(x))
        main = self.head(hidden + share * (gate.detach() if cut == "gate" else gate))
        return main + self.side(hidden.detach() if cut == "side" else hidden)


@scenario(
    "cut gradient",
    "a detach() that cuts a branch's gradient off",
    size=(6, 24),
    whole=TYPE_I,
    part_lost=TYPE_II,
    all_lost=TYPE_II,
    zero_lost=TYPE_I,
    cause={"all_lost": "STRUCTURE"},
    suspect={"part_lost": r"detach|self\.side| trunk$", "all_lost": r"gate"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = Branches().to(dtype)
    other = copy.deepcopy(one)
    x, y = normal(seed, size, 12, dtype=dtype), normal(seed + 1, size, 4, dtype=dtype)
    share = 0.0 if variant == "zero_lost" else 1.0
    cut = {"part_lost": "side", "all_lost": "gate", "zero_lost": "gate"}.get(variant, "")

    def step(model: Branches, cut: str) -> dict[str, Tensor]:
        loss = (model(x, cut, share) - y).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    return lambda: step(one, cut), lambda: step(other, "")
