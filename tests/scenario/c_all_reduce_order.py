"""Data parallelism over eight ranks: gradients are added around a ring, or along a tree."""

import copy

import torch
from models import MLP, gradients, normal
from scenario import TYPE_I, Program, scenario

RANKS = 8


@scenario("all-reduce order", "ring against tree over eight ranks", size=(16, 64), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    rows = RANKS * max(1, size // RANKS)
    x, y = normal(seed, rows, 16, dtype=dtype), normal(seed + 1, rows, 8, dtype=dtype)

    def run(tree: bool) -> dict[str, torch.Tensor]:
        by_rank = []
        for part_x, part_y in zip(x.chunk(RANKS), y.chunk(RANKS), strict=True):
            model = copies[tree].pop()
            loss = (model(part_x) - part_y).square().mean()
            loss.backward()
            by_rank.append({"loss": loss.detach(), **gradients(model)})
        total = {}
        for name in by_rank[0]:
            parts = [taps[name] for taps in by_rank]
            while len(parts) > 1:
                if tree:
                    parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
                else:
                    parts = [parts[0] + parts[1], *parts[2:]]
            total[name] = parts[0] / RANKS
        return total

    copies = {tree: [copy.deepcopy(one) for _ in range(RANKS)] for tree in (False, True)}
    return lambda: run(True), lambda: run(False)
