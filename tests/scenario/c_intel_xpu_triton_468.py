"""intel-xpu-backend-for-triton 468: fp16 results at a large K lie 0.125 apart, which is one unit in the last place of a
number between 128 and 256."""

import torch
from emulated import device, half, kernels, products
from models import normal
from scenario import TYPE_I, Program, scenario

INNER = 64


@scenario(
    "intel-xpu-triton 468",
    "0.125 off in fp16 at a large K",
    size=(32, 64),
    options={"profile": "cuda-sm80", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.float16 if dtype == torch.float32 else dtype
    inner = INNER * size
    a, b = 2 * normal(seed, 16, inner, dtype=dtype), normal(seed + 1, inner, 32, dtype=dtype)
    a, b = a.to(short), b.to(short)

    def plain() -> dict[str, torch.Tensor]:
        return {"out": a @ b}

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(half(8))):
            return plain()

    return target, plain
