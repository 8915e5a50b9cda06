"""Weights that one model keeps in another layout, of which nobody told: transposed, or three of them in one tensor.
Two of the three in each other's place are a bug."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn

HEAD = 16


class Fused(nn.Module):
    def __init__(self, weight: Tensor, transposed: bool) -> None:
        super().__init__()
        self.qkv = nn.Parameter(weight.T.contiguous() if transposed else weight.clone())
        self.transposed = transposed

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (x @ self.qkv if self.transposed else F.linear(x, self.qkv)).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v)


class Plain(nn.Module):
    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(HEAD, HEAD, bias=False) for _ in range(3))
        for linear, weight in zip((self.q, self.k, self.v), weights, strict=True):
            linear.weight = nn.Parameter(weight.clone())

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.q(x) @ self.k(x).transpose(-2, -1) / HEAD**0.5, -1) @ self.v(x)


@scenario(
    "stored otherwise",
    "weights in another layout, not declared",
    size=(6, 24),
    fused=TYPE_I,
    transposed=TYPE_I,
    exchanged=TYPE_II,
    cause={"exchanged": "MATHEMATICS|LEAF_MISMATCH"},  # Wrong weights are both.
    suspect={"exchanged": r"qkv|self\.[qkv]|scaled_dot|softmax"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    weights = [normal(seed + i, HEAD, HEAD, dtype=dtype) / 4 for i in range(3)]
    x = normal(seed + 3, 2, size, HEAD, dtype=dtype)
    order = (0, 2, 1) if variant == "exchanged" else (0, 1, 2)
    fused = Fused(torch.cat([weights[i] for i in order]), variant == "transposed")
    plain = Plain(weights)

    def run(model: nn.Module) -> dict[str, Tensor]:
        out = model(x)
        return {"loss": out.square().mean().detach(), "out": out.detach()}

    return lambda: run(fused), lambda: run(plain)
