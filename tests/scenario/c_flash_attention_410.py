"""flash-attention 410, 1138: the online softmax, block by block, differs from the plain one in the last digits."""

import math

import torch
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario("flash-attention 410", "online softmax by blocks against plain, fp32", size=(16, 96), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q, k, v = (normal(seed + i, 2, size, 16, dtype=dtype) for i in range(3))
    scale = 1 / math.sqrt(16)

    def target() -> dict[str, torch.Tensor]:
        row_max = torch.full((2, size, 1), float("-inf"), dtype=dtype)
        row_sum, out = torch.zeros(2, size, 1, dtype=dtype), torch.zeros_like(q)
        for block_k, block_v in zip(k.split(8, 1), v.split(8, 1), strict=True):
            scores = q @ block_k.transpose(-2, -1) * scale
            new_max = torch.maximum(row_max, scores.amax(-1, keepdim=True))
            p, correction = torch.exp(scores - new_max), torch.exp(row_max - new_max)
            row_sum = row_sum * correction + p.sum(-1, keepdim=True)
            out = out * correction + p @ block_v
            row_max = new_max
        out = out / row_sum
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, torch.Tensor]:
        out = torch.softmax(q @ k.transpose(-2, -1) * scale, -1) @ v
        return {"loss": out.square().mean(), "out": out}

    return target, reference
