"""Triton 1821: fused attention block by block, where what was summed so far is not rescaled when a block brings a
larger maximum."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from emulated import device, kernels
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

aten = torch.ops.aten
BLOCK = 8


def says(variant: str, verdict: Any) -> None:
    if variant == "bug":
        assert verdict.cause == "EXECUTION" and "attention" in verdict.suspect.op, verdict.explain()


def online(rescale: bool) -> Any:
    def kernel(
        out: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        top = torch.full((*q.shape[:-1], 1), -math.inf)
        total, result = torch.zeros_like(top), torch.zeros_like(q)
        for keys, values in zip(k.split(BLOCK, -2), v.split(BLOCK, -2), strict=True):
            scores = q @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1])
            higher = torch.maximum(top, scores.amax(-1, keepdim=True))
            shrink, weights = torch.exp(top - higher), torch.exp(scores - higher)
            total = total * shrink + weights.sum(-1, keepdim=True)
            result = (result * shrink if rescale else result) + weights @ values
            top = higher
        return result / total, (top + total.log()).squeeze(-1)

    return kernel


@scenario(
    "Triton 1821",
    "fused attention that forgets to rescale",
    size=(16, 32),
    says=says,
    options={"capture": "outputs"},
    device=device,
    bug=TYPE_II,
    fixed=TYPE_I,
    cause={"bug": "EXECUTION"},
    suspect={"bug": r"scaled_dot_product"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q, k, v = (normal(seed + i, 1, 2, size, 8, dtype=dtype) for i in range(3))

    def plain() -> dict[str, torch.Tensor]:
        out = F.scaled_dot_product_attention(q, k, v)
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, torch.Tensor]:
        with kernels({aten._scaled_dot_product_flash_attention_for_cpu.default: online(variant == "fixed")}):
            return plain()

    return target, plain
