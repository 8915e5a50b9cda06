"""Triton 1666: a product with a transposed operand whose kernel reads it as if it were not."""

from typing import Any

import torch
from emulated import device, kernels
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

aten = torch.ops.aten


def says(variant: str, verdict: Any) -> None:
    if variant == "bug":
        assert verdict.cause == "EXECUTION" and verdict.suspect.op.startswith("aten::mm"), verdict.explain()


def strides_ignored(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One 4 x 4 tile of the transposed operand is read the other way round."""
    wrong = b.clone()
    wrong[:4, :4] = b[:4, :4].T
    return a @ wrong


def other_order(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.flip(1) @ b.flip(0)).contiguous()


@scenario(
    "Triton 1666",
    "product with a transposed operand",
    size=(16, 48),
    says=says,
    options={"capture": "outputs"},
    device=device,
    bug=TYPE_II,
    fixed=TYPE_I,
    cause={"bug": "EXECUTION"},
    suspect={"bug": r"mm.*a @ b\.T"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    a, b = normal(seed, size, size, dtype=dtype), normal(seed + 1, size, size, dtype=dtype)

    def plain() -> dict[str, torch.Tensor]:
        out = a @ b.T
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, torch.Tensor]:
        with kernels({aten.mm.default: strides_ignored if variant == "bug" else other_order}):
            return plain()

    return target, plain
