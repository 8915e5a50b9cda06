"""A whole training step of a GPT-2-like model under bf16 autocast, forms of the optimizer exchanged, against fp32; and
with a loss that is scaled once too often."""

import copy
import sys
from pathlib import Path

import torch
from models import cross_entropy, gradients, sentences, weights
from scenario import TYPE_I, TYPE_II, Program, scenario

sys.path.append(str(Path(__file__).resolve().parents[2] / "deploy" / "lib"))
from gpt import GPT


@scenario(
    "GPT bf16",
    "a whole step under bf16 autocast against fp32",
    size=(2, 8),
    options={"capture": "outputs"},
    benign=TYPE_I,
    scaled_twice=TYPE_II,
    cause={"benign": "ROUNDING|PRECISION_POLICY"},  # As few places own the difference, or many.
    suspect={"scaled_twice": r"mul.*\* scale"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = GPT(vocabulary=32, context=16, width=32, heads=2).to(dtype)
    full = copy.deepcopy(short)
    inputs, targets = sentences(size, 16, seed)

    def train(model: GPT, autocast: bool, foreach: bool, scale: float) -> dict[str, torch.Tensor]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = cross_entropy(model, inputs, targets) * scale
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return {"loss": loss.detach(), **gradients(model), **weights(model)}

    scale = 1.01 if variant == "scaled_twice" else 1.0
    return lambda: train(short, dtype == torch.float32, True, scale), lambda: train(full, False, False, 1.0)
