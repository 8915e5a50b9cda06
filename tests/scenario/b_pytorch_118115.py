"""pytorch 118115: an in-place operation on a tensor that is not contiguous, whose kernel writes into a contiguous copy
that nobody copies back."""

from typing import Any

import torch
from emulated import device, kernels
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

aten = torch.ops.aten


def says(variant: str, verdict: Any) -> None:
    if variant == "bug":
        assert verdict.cause == "EXECUTION" and verdict.suspect.op.startswith("aten::addcmul_"), verdict.explain()


def never_copied_back(out: torch.Tensor, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, value: float = 1) -> Any:
    return out if out.is_contiguous() else out.sub_(a * b, alpha=value)


@scenario(
    "pytorch 118115",
    "in-place kernel on a tensor that is not contiguous",
    size=(8, 32),
    says=says,
    options={"capture": "outputs"},
    device=device,
    bug=TYPE_II,
    fixed=TYPE_I,
    cause={"bug": "EXECUTION"},
    suspect={"bug": r"addcmul_"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, a, b = (normal(seed + i, size, 16, dtype=dtype) for i in range(3))

    def moved() -> dict[str, torch.Tensor]:
        weight = x.clone().T if variant == "bug" else x.T.contiguous()
        weight.addcmul_(a.T, b.T, value=0.5)
        return {"weight": weight, "norm": weight.square().sum()}

    def target() -> dict[str, torch.Tensor]:
        with kernels({aten.addcmul_.default: never_copied_back}):
            return moved()

    return target, moved
