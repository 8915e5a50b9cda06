"""A public GPT-2 (the `transformers` package), random weights: attention written out ("eager") against the fused
kernel ("sdpa"), loss and gradients of a whole forward and backward pass."""

import copy

import torch
import torch.nn.functional as F
from models import gradients
from scenario import TYPE_I, Program, scenario
from transformers import GPT2Config, GPT2LMHeadModel


@scenario("transformers GPT-2", "eager against fused attention, forward and backward", size=(8, 24), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    config = GPT2Config(vocab_size=48, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    config.use_cache = False
    models = []
    for attention in ("eager", "sdpa"):
        config._attn_implementation = attention
        models.append(GPT2LMHeadModel(copy.deepcopy(config)).to(dtype))
    models[1].load_state_dict(models[0].state_dict())
    tokens = torch.randint(0, 48, (2, size), generator=torch.Generator().manual_seed(seed))

    def run(model: GPT2LMHeadModel) -> dict[str, torch.Tensor]:
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    return lambda: run(models[0]), lambda: run(models[1])
