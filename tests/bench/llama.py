"""A Llama-like transformer of torch.nn: RMS norm, rotary positions, grouped heads, gated feed-forward."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, time: int) -> None:
        super().__init__()
        size = width // heads
        self.heads, self.groups = heads, groups
        self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)
        frequency = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angle = torch.outer(torch.arange(time), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def rotate(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat([-right, left], -1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        y = self.before(x)
        q, k, v = (
            linear(y).view(batch, time, heads, -1).transpose(1, 2)
            for linear, heads in ((self.q, self.heads), (self.k, self.groups), (self.v, self.groups))
        )
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (self.rotate(k), v))
        mixed = F.scaled_dot_product_attention(self.rotate(q), k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, time, width))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, depth: int, width: int, heads: int, groups: int, vocabulary: int, time: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups, time) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# 25 million parameters, the size that large steps are measured at.
LLAMA_25M = {"depth": 8, "width": 512, "heads": 8, "groups": 4, "vocabulary": 6000, "time": 128}
LLAMA_SMALL = {"depth": 2, "width": 64, "heads": 4, "groups": 2, "vocabulary": 256, "time": 32}
