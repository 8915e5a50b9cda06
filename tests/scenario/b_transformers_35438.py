"""transformers 35438: the loss, already divided by all tokens, is multiplied by the number of accumulation steps."""

import copy

import torch
from models import IGNORE, LanguageModel, cross_entropy, gradients, sentences
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "transformers 35438",
    "loss times accumulation steps",
    size=(4, 16),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"\* factor"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = LanguageModel(16).to(dtype)
    many = copy.deepcopy(one)
    inputs, targets = sentences(size, 12, seed)
    factor = 2 if variant == "bug" else 1

    def target() -> dict[str, torch.Tensor]:
        loss, items = torch.zeros((), dtype=dtype), (targets != IGNORE).sum()
        for x, y in zip(inputs.chunk(2), targets.chunk(2), strict=True):
            part = cross_entropy(many, x, y, "sum") / items * factor
            part.backward()
            loss = loss + part.detach()
        return {"loss": loss, **gradients(many)}

    def reference() -> dict[str, torch.Tensor]:
        loss = cross_entropy(one, inputs, targets)
        loss.backward()
        return {"loss": loss.detach(), **gradients(one)}

    return target, reference
