"""A loss over logits[mask], which picks the rows that count, against one over all rows that ignores the others. A mean
over all rows is a bug."""

import copy

import torch
import torch.nn.functional as F
from models import IGNORE, VOCABULARY, LanguageModel, gradients, sentences
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "masked loss",
    "a loss over logits[mask] against ignored targets",
    size=(8, 24),
    picked=TYPE_I,
    by_index=TYPE_I,
    all_rows=TYPE_II,
    suspect={"all_rows": r"numel|nll_loss"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = LanguageModel().to(dtype)
    other = copy.deepcopy(one)
    x, y = sentences(4, size, seed)

    def target() -> dict[str, Tensor]:
        logits, mask = one(x), y != IGNORE
        if variant == "by_index":
            rows = mask.flatten().nonzero()[:, 0]
            loss = F.cross_entropy(logits.flatten(0, 1).index_select(0, rows), y.flatten().index_select(0, rows))
        elif variant == "all_rows":
            loss = F.cross_entropy(logits[mask].view(-1, VOCABULARY), y[mask], reduction="sum") / y.numel()
        else:
            loss = F.cross_entropy(logits[mask], y[mask])
        loss.backward()
        return {"loss": loss.detach(), **gradients(one)}

    def reference() -> dict[str, Tensor]:
        loss = F.cross_entropy(other(x).flatten(0, 1), y.flatten(), ignore_index=IGNORE)
        loss.backward()
        return {"loss": loss.detach(), **gradients(other)}

    return target, reference
