"""DeepSpeed 7839: gradients are divided by the loss scale of 65536 although the loss was never multiplied by it."""

import copy

import torch
from models import MLP, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario

SCALE = 65536.0  # And a learning rate as for fine-tuning.


@scenario(
    "DeepSpeed 7839",
    "unscaled though never scaled",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"mul_\(after\)"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    scaled = MLP(16).to(dtype)
    plain = copy.deepcopy(scaled)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def train(model: MLP, before: float, after: float) -> dict[str, torch.Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=2e-5)
        loss = (model(x) - y).square().mean()
        (loss * before).backward()
        for p in model.parameters():
            p.grad.mul_(after)
        optimizer.step()
        return {"loss": loss.detach(), **weights(model)}

    return lambda: train(scaled, 1.0 if variant == "bug" else SCALE, 1 / SCALE), lambda: train(plain, 1.0, 1.0)
