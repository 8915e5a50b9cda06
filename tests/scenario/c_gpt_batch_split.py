"""A whole training step of a GPT-2-like model in fp32, with the batch split in another way."""

import copy
import sys
from pathlib import Path

import torch
from models import cross_entropy, gradients, sentences, weights
from scenario import TYPE_I, Program, scenario

sys.path.append(str(Path(__file__).resolve().parents[2] / "deploy" / "lib"))
from gpt import GPT


@scenario("GPT step", "a whole step, two micro-batches against four", size=(8, 24), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    two = GPT(vocabulary=32, context=24, width=32, heads=2).to(dtype)
    four = copy.deepcopy(two)
    rows = 4 * max(1, size // 4)
    inputs, targets = sentences(rows, 24, seed)

    def train(model: GPT, parts: int) -> dict[str, torch.Tensor]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        loss, tokens = torch.zeros((), dtype=dtype), (targets >= 0).sum()
        for x, y in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
            part = cross_entropy(model, x, y, "sum") / tokens
            part.backward()
            loss = loss + part.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return {"loss": loss, **gradients(model), **weights(model)}

    return lambda: train(two, 2), lambda: train(four, 4)
