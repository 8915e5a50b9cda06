"""Megatron-LM 7452: the count of tokens is all-reduced in place, so that what should be a rank's own count is the
total, and the auxiliary loss weighted by it is too large."""

import copy

import torch
from models import IGNORE, LanguageModel, cross_entropy, gradients, sentences
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "Megatron-LM 7452",
    "in-place all-reduce overwrites the local count",
    size=(4, 16),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"total \+= others|auxiliary \* local"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    mine = LanguageModel(16).to(dtype)
    theirs = copy.deepcopy(mine)
    inputs, targets = sentences(size, 12, seed)
    others = (sentences(size, 12, seed + 1)[1] != IGNORE).sum()  # The other rank's count.

    def rank(model: LanguageModel, in_place: bool) -> dict[str, torch.Tensor]:
        local = (targets != IGNORE).sum()
        total = local if in_place else local.clone()
        total += others
        auxiliary = 1e-2 * model.head.weight.square().mean()
        loss = cross_entropy(model, inputs, targets, "sum") / total + auxiliary * local / total
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    return lambda: rank(mine, variant == "bug"), lambda: rank(theirs, False)
