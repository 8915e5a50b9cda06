"""Attention without the factor 1/sqrt(d)."""

import math

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "attention scale",
    "softmax without 1/sqrt(d)",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"softmax|k\.transpose"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q, k, v = (normal(seed + i, 2, 2, size, 16, dtype=dtype) for i in range(3))
    scale = 1.0 if variant == "bug" else 1 / math.sqrt(16)

    def target() -> dict[str, torch.Tensor]:
        out = torch.softmax(q @ k.transpose(-2, -1) * scale, -1) @ v
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, torch.Tensor]:
        out = F.scaled_dot_product_attention(q, k, v)
        return {"loss": out.square().mean(), "out": out}

    return target, reference
