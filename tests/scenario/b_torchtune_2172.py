"""torchtune 2172: gradients are averaged over ranks although the loss was already divided by the tokens of all ranks;
the world size must be undone."""

import copy

import torch
from models import IGNORE, LanguageModel, cross_entropy, gradients, sentences
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "torchtune 2172",
    "world size not undone after a mean over ranks",
    size=(4, 16),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"div.*world"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = LanguageModel(16).to(dtype)
    ranks = [copy.deepcopy(one) for _ in range(2)]
    inputs, targets = sentences(size, 12, seed)
    world = len(ranks)

    def target() -> dict[str, torch.Tensor]:
        tokens = (targets != IGNORE).sum()
        loss = torch.zeros((), dtype=dtype)
        for model, x, y in zip(ranks, inputs.chunk(world), targets.chunk(world), strict=True):
            part = cross_entropy(model, x, y, "sum") / tokens
            (part if variant == "bug" else part * world).backward()
            loss = loss + part.detach()
        by_rank = [gradients(model) for model in ranks]
        averaged = {name: sum(g[name] for g in by_rank) / world for name in by_rank[0]}
        return {"loss": loss, **averaged}

    def reference() -> dict[str, torch.Tensor]:
        loss = cross_entropy(one, inputs, targets)
        loss.backward()
        return {"loss": loss.detach(), **gradients(one)}

    return target, reference
