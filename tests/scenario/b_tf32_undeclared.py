"""The same product in TF32 on a device that is said to keep fp32, against fp32: operands were cut that must not be."""

from typing import Any

import torch
from emulated import device, kernels, products, tf32
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario


def says(variant: str, verdict: Any) -> None:
    if variant == "tf32":
        assert verdict.cause == "EXECUTION" and verdict.suspect.op.startswith("aten::mm"), verdict.explain()


@scenario(
    "TF32 undeclared",
    "a product in TF32 where fp32 is promised",
    size=(64, 256),
    says=says,
    options={"profile": "cuda-sm80", "capture": "outputs"},
    device=device,
    tf32=TYPE_II,
    fp32=TYPE_I,
    cause={"tf32": "EXECUTION"},
    suspect={"tf32": r"mm.*a @ b"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    a, b = normal(seed, 8, size, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def plain() -> dict[str, torch.Tensor]:
        return {"out": a @ b}

    def backwards(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.flip(1) @ y.flip(0)

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(tf32(4) if variant == "tf32" else backwards)):
            return plain()

    return target, plain
