"""Optimizer state that something spoils in place by a small factor: before the step that is compared, or within it."""

import copy

import torch
from models import MLP, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

FACTOR = 1 + 2**-12


@scenario(
    "spoiled state",
    "optimizer state spoiled in place by a small factor",
    size=(6, 24),
    untouched=TYPE_I,
    before=TYPE_II,
    within=TYPE_II,
    cause={"before": "LEAF_MISMATCH"},
    suspect={"before": r"leaf|exp_avg_sq", "within": r"mul_\(FACTOR\)"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)
    start = MLP(16).to(dtype)

    def training() -> tuple[MLP, torch.optim.Optimizer]:
        """A model after its first step."""
        model = copy.deepcopy(start)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
        step(model, optimizer)
        return model, optimizer

    def step(model: MLP, optimizer: torch.optim.Optimizer, spoiled: bool = False) -> dict[str, Tensor]:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        if spoiled:
            spoil(optimizer)
        optimizer.step()
        second = {f"state:{n}": optimizer.state[p]["exp_avg_sq"] for n, p in model.named_parameters()}
        return {"loss": loss.detach(), **second, **{f"weight:{n}": p.detach() for n, p in model.named_parameters()}}

    def spoil(optimizer: torch.optim.Optimizer) -> None:
        for state in optimizer.state.values():
            state["exp_avg_sq"].mul_(FACTOR)

    mine, plain = training(), training()
    if variant == "before":
        spoil(mine[1])
    return lambda: step(*mine, spoiled=variant == "within"), lambda: step(*plain)
