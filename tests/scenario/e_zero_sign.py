"""The sign of what is zero by mathematics: softmax's gradient adds up to zero over a row, and so does that of the key's
bias in attention. Rounding alone gives it a sign, which a step of signSGD takes. A step of another length is a bug."""

import copy

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

RATE = 0.01


class Attention(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, fused: bool) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        if fused:
            return F.scaled_dot_product_attention(q, k, v)
        return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v


def row_signs(p: Tensor, g: Tensor, rate: float) -> dict[str, Tensor]:
    return {"moved": 0.1 - rate * torch.sign((p * (g - (p * g).sum(-1, keepdim=True))).sum(-1))}


@scenario(
    "zero sign",
    "the sign of a sum that is zero by mathematics",
    size=(8, 24),
    softmax=TYPE_I,
    attention=TYPE_I,
    wrong_rate=TYPE_II,
    suspect={"wrong_rate": r"rate"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    if variant != "attention":
        a, g = normal(seed, size, 5, dtype=dtype), normal(seed + 1, size, 5, dtype=dtype)
        rate = RATE * (1.001 if variant == "wrong_rate" else 1)
        return (
            lambda: row_signs(a.softmax(-1), g, rate),
            lambda: row_signs(a.exp() / a.exp().sum(-1, keepdim=True), g, RATE),
        )
    one = Attention(8).to(dtype)
    other = copy.deepcopy(one)
    x, y = normal(seed, 2, size, 8, dtype=dtype), normal(seed + 1, 2, size, 8, dtype=dtype)

    def step(model: Attention, fused: bool) -> dict[str, Tensor]:
        loss = (model(x, fused) - y).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(RATE * p.grad.sign())
        return {"loss": loss.detach(), **{n: p.detach() for n, p in model.named_parameters()}}

    return lambda: step(one, False), lambda: step(other, True)
