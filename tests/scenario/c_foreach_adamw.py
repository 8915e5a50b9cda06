"""AdamW by lists of tensors (foreach) against one tensor at a time."""

import copy

import torch
from models import LanguageModel, cross_entropy, sentences, weights
from scenario import TYPE_I, Program, scenario


@scenario("foreach AdamW", "foreach against single-tensor AdamW", size=(6, 24), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    mine = LanguageModel(16).to(dtype)
    theirs = copy.deepcopy(mine)
    inputs, targets = sentences(size, 12, seed)

    def train(model: LanguageModel, foreach: bool) -> dict[str, torch.Tensor]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)
        loss = cross_entropy(model, inputs, targets)
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), **weights(model)}

    return lambda: train(mine, True), lambda: train(theirs, False)
