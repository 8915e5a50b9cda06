"""Triton 4701: a store without a mask. The last block of a kernel reaches beyond the end of its tensor and overwrites
the neighbour in one buffer."""

from typing import Any

import torch
from emulated import device, kernels
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

aten = torch.ops.aten
BLOCK = 16


def says(variant: str, verdict: Any) -> None:
    if variant == "bug":
        assert verdict.cause == "EXECUTION", verdict.explain()


def unmasked(out: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    excess = -out.numel() % BLOCK
    torch.as_strided(out, (excess,), (1,), out.storage_offset() + out.numel()).zero_()
    return out


def masked(out: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return out


@scenario(
    "Triton 4701",
    "store without a mask",
    size=(20, 60),
    says=says,
    options={"capture": "outputs"},
    device=device,
    bug=TYPE_II,
    fixed=TYPE_I,
    cause={"bug": "EXECUTION"},
    unplaced={"bug": "The kernel overwrites what is no result of it: the first to contradict its inputs reads that."},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    size += size % BLOCK == 0  # A whole number of blocks has no excess.
    x, factor = normal(seed, size + BLOCK, dtype=dtype), normal(seed + 1, size, dtype=dtype)

    def plain() -> dict[str, torch.Tensor]:
        flat = x * 2
        head, tail = flat[:size], flat[size:]
        head.mul_(factor)
        return {"head": head.square().sum(), "tail": tail.square().sum()}

    def target() -> dict[str, torch.Tensor]:
        with kernels({aten.mul_.Tensor: unmasked if variant == "bug" else masked}):
            return plain()

    return target, plain
