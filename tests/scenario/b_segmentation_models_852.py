"""segmentation_models.pytorch 852: ignored samples stay in the denominator of the mean."""

import copy

import torch
from models import IGNORE, LanguageModel, cross_entropy, gradients, sentences
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "segmentation_models 852",
    "ignored samples in the denominator",
    size=(4, 16),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"mean.*losses\.mean"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    mine = LanguageModel(16).to(dtype)
    theirs = copy.deepcopy(mine)
    inputs, targets = sentences(size, 12, seed)

    def target() -> dict[str, torch.Tensor]:
        losses = cross_entropy(mine, inputs, targets, "none")
        loss = losses.mean() if variant == "bug" else losses.sum() / (targets != IGNORE).sum()
        loss.backward()
        return {"loss": loss.detach(), **gradients(mine)}

    def reference() -> dict[str, torch.Tensor]:
        loss = cross_entropy(theirs, inputs, targets)
        loss.backward()
        return {"loss": loss.detach(), **gradients(theirs)}

    return target, reference
