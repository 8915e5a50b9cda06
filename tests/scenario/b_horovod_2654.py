"""horovod 2654: gradients are summed over ranks where they should be averaged."""

import copy

import torch
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "horovod 2654",
    "sum for average over ranks",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"sum\(g\[name\]|mean\(\)"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    ranks = [copy.deepcopy(one) for _ in range(4)]
    rows = 4 * (size // 4)  # Ranks hold equally many rows.
    x, y = normal(seed, rows, 16, dtype=dtype), normal(seed + 1, rows, 8, dtype=dtype)

    def target() -> dict[str, torch.Tensor]:
        losses = []
        for model, part_x, part_y in zip(ranks, x.chunk(4), y.chunk(4), strict=True):
            loss = (model(part_x) - part_y).square().mean()
            loss.backward()
            losses.append(loss.detach())
        by_rank = [gradients(model) for model in ranks]
        reduced = {name: sum(g[name] for g in by_rank) for name in by_rank[0]}
        if variant == "fixed":
            reduced = {name: g / len(ranks) for name, g in reduced.items()}
        return {"loss": sum(losses) / len(ranks), **reduced}

    def reference() -> dict[str, torch.Tensor]:
        loss = (one(x) - y).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(one)}

    return target, reference
