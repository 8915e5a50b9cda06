"""A product that leaves out one tile of its inner dimension, small enough to hide in a worst-case envelope of fp16."""

from typing import Any

import torch
from emulated import device, kernels
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario

aten = torch.ops.aten
TILE = 8


def says(variant: str, verdict: Any) -> None:
    if variant == "bug":
        assert verdict.cause == "EXECUTION" and verdict.suspect.op.startswith("aten::mm"), verdict.explain()


def dropped(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return out - a[:, -TILE:] @ b[-TILE:] if a.shape[1] > TILE else out


def split(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[:, :-TILE] @ b[:-TILE] + a[:, -TILE:] @ b[-TILE:]


@scenario(
    "dropped tile",
    "a product without its last tile of K",
    size=(32, 64),
    says=says,
    options={"capture": "outputs"},
    device=device,
    bug=TYPE_II,
    fixed=TYPE_I,
    cause={"bug": "EXECUTION"},
    suspect={"bug": r"mm.* fc_2$"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    model = MLP(size).to(dtype)
    x, y = normal(seed, 16, size, dtype=dtype), normal(seed + 1, 16, 8, dtype=dtype)

    def plain() -> dict[str, torch.Tensor]:
        model.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    def target() -> dict[str, torch.Tensor]:
        with kernels({aten.mm.default: dropped if variant == "bug" else split}):
            return plain()

    return target, plain
