"""Triton 1808: split-K whose partial sums are added by atomics in fp16 itself, where the device is said to do so; sums
of one sign, as of weights in attention."""

import random

import torch
from emulated import device, half, kernels, products
from models import normal
from scenario import TYPE_I, Program, scenario

PARTS = 4


@scenario(
    "Triton 1808",
    "split-K with atomics in the result's format",
    size=(64, 256),
    options={"profile": "cuda-sm80+reduced", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.float16 if dtype == torch.float32 else dtype
    a, b = normal(seed, 8, size, dtype=dtype).abs().to(short), normal(seed + 1, size, 8, dtype=dtype).abs().to(short)

    def atomics(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        parts = [half(8)(p, q).half() for p, q in zip(x.chunk(PARTS, 1), y.chunk(PARTS, 0), strict=True)]
        random.Random(seed).shuffle(parts)
        total = torch.zeros_like(parts[0])
        for part in parts:
            total = total + part
        return total.float()

    def plain() -> dict[str, torch.Tensor]:
        return {"out": a @ b}

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(atomics)):
            return plain()

    return target, plain
