"""Triton 4551: two products in TF32 in a row, with a softmax between them, against fp32."""

import torch
from emulated import device, kernels, products, tf32
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario(
    "Triton 4551",
    "attention's two products in TF32",
    size=(16, 48),
    options={"profile": "cuda-sm90+tf32", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q, k, v = (normal(seed + i, 2, size, 16, dtype=dtype) for i in range(3))

    def plain() -> dict[str, torch.Tensor]:
        return {"out": torch.softmax((q @ k.transpose(1, 2)) / 4, -1) @ v}

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(tf32(8))):
            return plain()

    return target, plain
