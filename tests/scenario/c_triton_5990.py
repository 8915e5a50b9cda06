"""Triton 5990: a GEMM of fp16 on tensor cores, which cut terms off instead of rounding them, with a bias."""

import torch
import torch.nn.functional as F
from emulated import device, half, kernels, products
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario(
    "Triton 5990",
    "an fp16 GEMM on tensor cores",
    size=(64, 256),
    options={"profile": "cuda-sm90", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.float16 if dtype == torch.float32 else dtype
    x, w, bias = (normal(seed + i, *s, dtype=dtype).to(short) for i, s in enumerate([(32, size), (32, size), (32,)]))

    def plain() -> dict[str, torch.Tensor]:
        return {"out": F.linear(x, w, bias)}

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(half(16))):
            return plain()

    return target, plain
