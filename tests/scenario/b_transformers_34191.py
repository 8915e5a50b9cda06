"""transformers 34191: a trainer averages the micro-batches' mean losses although their token counts differ."""

import copy

import torch
from models import IGNORE, LanguageModel, cross_entropy, gradients, sentences
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "transformers 34191",
    "mean of means in the trainer",
    size=(6, 20),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"div.*/ size"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = LanguageModel(16).to(dtype)
    many = copy.deepcopy(one)
    inputs, targets = sentences(size, 12, seed)

    def target() -> dict[str, torch.Tensor]:
        loss, items = torch.zeros((), dtype=dtype), (targets != IGNORE).sum()
        for row in range(size):  # One sequence a micro-batch.
            x, y = inputs[row : row + 1], targets[row : row + 1]
            if variant == "bug":
                part = cross_entropy(many, x, y) / size
            else:
                part = cross_entropy(many, x, y, "sum") / items
            part.backward()
            loss = loss + part.detach()
        return {"loss": loss, **gradients(many)}

    def reference() -> dict[str, torch.Tensor]:
        loss = cross_entropy(one, inputs, targets)
        loss.backward()
        return {"loss": loss.detach(), **gradients(one)}

    return target, reference
