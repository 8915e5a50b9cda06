"""Transformers of torch.nn with random weights: GPT-like (deploy/lib/gpt.py) and Llama-like, of any depth."""

import torch
import torch.nn.functional as F
from gpt import GPT
from llama import Llama
from torch import Tensor, nn

WIDTH, HEADS, GROUPS, VOCABULARY, ROWS, TIME = 64, 4, 2, 256, 2, 32


def network(kind: str, depth: int) -> nn.Module:
    torch.manual_seed(3)
    if kind == "Llama":
        return Llama(depth, WIDTH, HEADS, GROUPS, VOCABULARY, TIME)
    return GPT(VOCABULARY, TIME, WIDTH, HEADS, depth)


def batch() -> Tensor:
    return torch.randint(0, VOCABULARY, (ROWS, TIME + 1), generator=torch.Generator().manual_seed(4))


def loss_and_gradient(model: nn.Module, tokens: Tensor, autocast: bool) -> dict[str, Tensor]:
    """The loss and the gradient of the first block's first matrix: as deep as a gradient goes."""
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(
            logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32)), tokens[:, 1:].flatten()
        )
    loss.backward()
    first = next(p for p in model.blocks[0].parameters() if p.dim() == 2)
    return {"loss": loss.detach(), "gradient": first.grad}
