"""torchao 1124: weights in bf16 under AdamW with a small rate: most never move. A cast of the weights owns the
difference to fp32; the same rate of decay taken twice does not come from a cast."""

import copy
from typing import Any

import torch
from models import MLP, hazards, normal
from scenario import TYPE_I, TYPE_II, Program, scenario

RATE = 1e-5


def says(variant: str, verdict: Any) -> None:
    if variant == "bf16_weights":
        lost = hazards(verdict).get("lost_updates")
        assert lost is not None and lost.share > 0.5 and lost.place.format == "bf16", verdict.explain()


@scenario(
    "torchao 1124",
    "bf16 weights that never move",
    size=(8, 24),
    says=says,
    bf16_weights=TYPE_I,
    fp32_weights=TYPE_I,
    decayed_twice=TYPE_II,
    cause={"bf16_weights": "PRECISION_POLICY"},
    suspect={"decayed_twice": r"mul_|AdamW"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    full = MLP(16).to(dtype)
    with torch.no_grad():
        for p in full.parameters():
            p.copy_(p.bfloat16())
    held = torch.bfloat16 if variant == "bf16_weights" and dtype == torch.float32 else dtype
    narrow = copy.deepcopy(full).to(held)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def step(model: MLP, twice: bool, foreach: bool) -> dict[str, torch.Tensor]:
        loss = (model(x.to(model.fc_1.weight.dtype)).to(dtype) - y).square().mean()
        loss.backward()
        if twice:
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(1 - RATE * 0.01)
        torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, foreach=foreach).step()
        return {"loss": loss.detach(), **{f"weight:{n}": p.detach().to(dtype) for n, p in model.named_parameters()}}

    return lambda: step(narrow, variant == "decayed_twice", True), lambda: step(full, False, False)
