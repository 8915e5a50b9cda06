"""Weight decay as a penalty in the loss and as the optimizer's own: with SGD they are one, half the sum of squares has
the weights as its gradient. Without the half, or with AdamW's decay, they are not."""

import copy

import torch
from models import MLP, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

RATE, DECAY = 0.05, 0.01


@scenario(
    "weight decay",
    "weight decay in the loss against the optimizer's own",
    size=(6, 24),
    penalty=TYPE_I,
    no_half=TYPE_II,
    decoupled=TYPE_II,
    suspect={"no_half": r"square\(\)|step\(\)|backward", "decoupled": r"step\(\)"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    other = copy.deepcopy(one)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def step(model: MLP, penalty: float, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        loss = (model(x) - y).square().mean()
        whole = loss
        if penalty:
            whole = loss + penalty * sum(p.square().sum() for p in model.parameters())
        whole.backward()
        optimizer.step()
        return {"loss": loss.detach(), **weights(model)}

    def target() -> dict[str, Tensor]:
        if variant == "decoupled":
            return step(one, 0, torch.optim.AdamW(one.parameters(), RATE, weight_decay=DECAY, foreach=False))
        half = 1.0 if variant == "no_half" else 0.5
        return step(one, half * DECAY, torch.optim.SGD(one.parameters(), RATE))

    def reference() -> dict[str, Tensor]:
        if variant == "decoupled":
            return step(other, 0, torch.optim.Adam(other.parameters(), RATE, weight_decay=DECAY, foreach=False))
        return step(other, 0, torch.optim.SGD(other.parameters(), RATE, weight_decay=DECAY))

    return target, reference
