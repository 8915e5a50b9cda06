"""A1. The mean of the micro-batches' means is a/b + c/d, not (a + c)/(b + d): equal only where the counts are."""

import copy

import torch
from models import IGNORE, LanguageModel, cross_entropy, gradients, sentences
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "A1 accumulation",
    "mean of micro-batch means, uneven and equal token counts",
    size=(8, 24),
    uneven=TYPE_II,
    equal=TYPE_I,
    fixed=TYPE_I,
    suspect={"uneven": r"div.*cross_entropy\(split, x, y\) / 4"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    whole = LanguageModel().to(dtype)
    split = copy.deepcopy(whole)
    rows = 4 * (size // 4)  # Four micro-batches of equal size, or equal counts would not be equal.
    inputs, targets = sentences(rows, size, seed, uneven=variant != "equal")

    def target() -> dict[str, torch.Tensor]:
        loss, tokens = torch.zeros((), dtype=dtype), (targets != IGNORE).sum()
        for x, y in zip(inputs.chunk(4), targets.chunk(4), strict=True):
            if variant == "fixed":
                part = cross_entropy(split, x, y, "sum") / tokens
            else:
                part = cross_entropy(split, x, y) / 4
            part.backward()
            loss = loss + part.detach()
        return {"loss": loss, **gradients(split)}

    def reference() -> dict[str, torch.Tensor]:
        loss = cross_entropy(whole, inputs, targets)
        loss.backward()
        return {"loss": loss.detach(), **gradients(whole)}

    return target, reference
