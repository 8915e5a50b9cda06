"""Attention written out against the fused kernel, forward and backward."""

import math

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario("fused attention", "causal attention, written out against fused", size=(12, 48), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    data = [normal(seed + i, 2, 2, size, 16, dtype=dtype) for i in range(3)]
    future = torch.ones(size, size, dtype=torch.bool).triu(1)

    def run(fused: bool) -> dict[str, torch.Tensor]:
        q, k, v = (x.clone().requires_grad_() for x in data)
        if fused:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
            out = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        loss = out.square().mean()
        loss.backward()
        return {"loss": loss.detach(), "grad:q": q.grad, "grad:k": k.grad, "grad:v": v.grad}

    return lambda: run(False), lambda: run(True)
