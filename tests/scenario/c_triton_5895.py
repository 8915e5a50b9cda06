"""Triton 5895: a dot of operands that differ much in size, in TF32, against fp32: the smaller terms are cut off."""

import torch
from emulated import device, kernels, products, tf32
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario(
    "Triton 5895",
    "a TF32 dot over many magnitudes",
    size=(64, 192),
    options={"profile": "cuda-sm80+tf32", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    magnitudes = torch.exp2(torch.arange(size, dtype=dtype) % 20 - 10)
    a, b = normal(seed, 8, size, dtype=dtype) * magnitudes, normal(seed + 1, 8, size, dtype=dtype)

    def plain() -> dict[str, torch.Tensor]:
        return {"out": a @ b.T}

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(tf32(4))):
            return plain()

    return target, plain
