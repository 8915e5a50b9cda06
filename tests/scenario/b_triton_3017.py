"""Triton 3017: a running sum and a sum in one kernel share scratch memory, so that the running sum starts again at each
warp."""

import itertools
from typing import Any

import torch
from emulated import device, kernels
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

aten = torch.ops.aten
WARP = 32


def says(variant: str, verdict: Any) -> None:
    if variant == "bug":
        assert verdict.cause == "EXECUTION" and verdict.suspect.op.startswith("aten::cumsum"), verdict.explain()


def by_warp(out: torch.Tensor, x: torch.Tensor, dim: int, **_: Any) -> torch.Tensor:
    return torch.cat([part.cumsum(dim) for part in x.split(WARP, dim)], dim)


def with_carry(out: torch.Tensor, x: torch.Tensor, dim: int, **_: Any) -> torch.Tensor:
    parts = [part.cumsum(dim) for part in x.split(WARP, dim)]
    for before, part in itertools.pairwise(parts):
        part += before.narrow(dim, -1, 1)
    return torch.cat(parts, dim)


@scenario(
    "Triton 3017",
    "running sum and sum in one kernel",
    size=(64, 128),
    says=says,
    options={"capture": "outputs"},
    device=device,
    bug=TYPE_II,
    fixed=TYPE_I,
    cause={"bug": "EXECUTION"},
    suspect={"bug": r"cumsum"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, 4, size, dtype=dtype)

    def plain() -> dict[str, torch.Tensor]:
        return {"running": x.cumsum(1) / (1 + x.square().sum(1, keepdim=True))}

    def target() -> dict[str, torch.Tensor]:
        with kernels({aten.cumsum.default: by_warp if variant == "bug" else with_carry}):
            return plain()

    return target, plain
