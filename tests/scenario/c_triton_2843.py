"""Triton 2843: a dot in TF32 whose blocks of K are added in fp32, block by block, against one product in fp32."""

import torch
from emulated import device, kernels, products, tf32
from models import normal
from scenario import TYPE_I, Program, scenario

BLOCK = 32


def by_blocks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for x, y in zip(a.split(BLOCK, 1), b.split(BLOCK, 0), strict=True):
        total = total + tf32(8)(x, y)
    return total


@scenario(
    "Triton 2843",
    "a TF32 dot by blocks of K",
    size=(64, 256),
    options={"profile": "cuda-sm90+tf32", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    a, b = normal(seed, 16, size, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def plain() -> dict[str, torch.Tensor]:
        out = a @ b
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(by_blocks)):
            return plain()

    return target, plain
