"""Triton 1190: split-K in fp16, whose partial sums are added to an fp32 buffer by atomics, in whatever order."""

import random

import torch
from emulated import device, half, kernels, products
from models import normal
from scenario import TYPE_I, Program, scenario

PARTS = 8


@scenario(
    "Triton 1190",
    "split-K with atomics, fp16",
    size=(64, 256),
    options={"profile": "cuda-sm80", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.float16 if dtype == torch.float32 else dtype
    a, b = normal(seed, 32, size, dtype=dtype).to(short), normal(seed + 1, size, 32, dtype=dtype).to(short)

    def atomics(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        parts = [half(8)(p, q) for p, q in zip(x.chunk(PARTS, 1), y.chunk(PARTS, 0), strict=True)]
        random.Random(seed).shuffle(parts)
        return torch.stack(parts).cumsum(0)[-1]

    def plain() -> dict[str, torch.Tensor]:
        return {"out": a @ b}

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(atomics)):
            return plain()

    return target, plain
