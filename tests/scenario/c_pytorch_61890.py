"""pytorch 61890: a product in TF32, whose operands lack their low 13 bits, against fp32: a thousandth apart."""

import torch
from emulated import device, kernels, products, tf32
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario(
    "pytorch 61890",
    "a product in TF32 against fp32",
    size=(64, 256),
    options={"profile": "cuda-sm80+tf32", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    a, b = normal(seed, 8, size, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def plain() -> dict[str, torch.Tensor]:
        return {"out": a @ b}

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(tf32(4))):
            return plain()

    return target, plain
