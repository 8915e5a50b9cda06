"""Triton 1924: a GEMM of fp16 whose blocks of K are taken in another order, and whose last block is padded."""

import torch
import torch.nn.functional as F
from emulated import device, half, kernels, products
from models import normal
from scenario import TYPE_I, Program, scenario

BLOCK = 32


def backwards(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    excess = -a.shape[1] % BLOCK
    a, b = F.pad(a.float(), (0, excess)), F.pad(b.float(), (0, 0, 0, excess))
    total = torch.zeros(a.shape[0], b.shape[1])
    for x, y in zip(reversed(a.split(BLOCK, 1)), reversed(b.split(BLOCK, 0)), strict=True):
        total = total + half(8)(x, y)
    return total


@scenario(
    "Triton 1924",
    "an fp16 GEMM in another order of blocks",
    size=(65, 250),
    options={"profile": "cuda-sm80", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.float16 if dtype == torch.float32 else dtype
    a, b = normal(seed, 32, size, dtype=dtype).to(short), normal(seed + 1, size, 32, dtype=dtype).to(short)

    def plain() -> dict[str, torch.Tensor]:
        out = a @ b
        return {"out": out, "loss": out.float().square().mean()}

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(backwards)):
            return plain()

    return target, plain
