"""vllm 7779: logits of a prompt depend on what else is in the batch, and on its padding."""

import sys
from pathlib import Path

import torch
from models import sentences
from scenario import TYPE_I, Program, scenario

sys.path.append(str(Path(__file__).resolve().parents[2] / "deploy" / "lib"))
from gpt import GPT


@scenario("vllm 7779", "a prompt alone against the prompt in a batch", size=(4, 12), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    model = GPT(vocabulary=32, context=24, width=32, heads=2).to(dtype)
    prompts = sentences(size, 24, seed)[0]

    def target() -> dict[str, torch.Tensor]:
        with torch.no_grad():
            logits = model(prompts)[1:2, :10]
        return {"loss": logits.square().mean(), "logits": logits}

    def reference() -> dict[str, torch.Tensor]:
        with torch.no_grad():
            logits = model(prompts[1:2, :10])
        return {"loss": logits.square().mean(), "logits": logits}

    return target, reference
