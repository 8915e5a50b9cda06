"""Rotary embedding with a table that was computed when the model was built and lies in a buffer, against one that is
computed in each forward pass. The numbers are the same bits; the buffer is a leaf, the other table is not. A buffer
that was made with another base is a bug."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn

HEAD = 16


def table(time: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    rates = 1.0 / base ** (torch.arange(0, HEAD, 2, dtype=dtype) / HEAD)
    angles = torch.arange(time, dtype=dtype)[:, None] * rates
    return torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    cos, sin = cos[:, : HEAD // 2], sin[:, : HEAD // 2]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


class Attention(nn.Module):
    """Scores of rotated queries and keys; `cached` holds the table in buffers."""

    def __init__(self, time: int, base: float, cached: bool, halves: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.time, self.base, self.rotate = time, base, rotate_halves if halves else rotate
        if cached:
            cos, sin = table(time, base, dtype)
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)
        self.cached = cached

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        cos, sin = (self.cos, self.sin) if self.cached else table(self.time, self.base, q.dtype)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        return torch.softmax(q @ k.transpose(-2, -1) / HEAD**0.5, -1)


@scenario(
    "rotary table",
    "a rotary table in a buffer against one that is computed",
    size=(8, 48),
    cached=TYPE_I,
    other_form=TYPE_I,
    other_base=TYPE_II,
    cause={"other_base": "MATHEMATICS|LEAF_MISMATCH"},  # A wrong table is both.
    suspect={"other_base": r"x \* cos|low \* cos|base \*\*|\.cos\(\)|leaf buffer:(cos|sin)"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q, k = normal(seed, 2, size, HEAD, dtype=dtype), normal(seed + 1, 2, size, HEAD, dtype=dtype)
    base = 10050.0 if variant == "other_base" else 10000.0
    mine = Attention(size, base, cached=True, halves=variant == "other_form", dtype=dtype)
    plain = Attention(size, 10000.0, cached=False, halves=False, dtype=dtype)

    def run(model: Attention) -> dict[str, Tensor]:
        scores = model(q, k)
        return {"loss": scores.square().mean(), "scores": scores}

    return lambda: run(mine), lambda: run(plain)
