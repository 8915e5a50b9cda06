"""Silent corruption: one bit of one element's exponent flips in a product's result; a flip that makes it half as large
in a gradient of thousands is far below what any tolerance sees."""

from typing import Any

import torch
from emulated import device, kernels
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario

aten = torch.ops.aten


def says(variant: str, verdict: Any) -> None:
    if variant == "flipped":
        assert verdict.cause == "EXECUTION" and verdict.suspect.op.startswith("aten::addmm"), verdict.explain()


def flipped(out: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    bits = out.clone().view(torch.int32)
    bits.view(-1)[7] ^= 1 << 23  # The last bit of the exponent: twice or half the value.
    return bits.view(torch.float32)


def last_place(out: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    bits = out.clone().view(torch.int32)
    bits.view(-1)[7] ^= 1  # One unit in the last place: what another order of addition gives.
    return bits.view(torch.float32)


@scenario(
    "flipped bit",
    "one bit of an exponent, one bit of a last place",
    size=(16, 48),
    says=says,
    options={"capture": "outputs"},
    device=device,
    flipped=TYPE_II,
    last_place=TYPE_I,
    cause={"flipped": "EXECUTION"},
    suspect={"flipped": r"addmm.* fc_1$"},
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
        with kernels({aten.addmm.default: flipped if variant == "flipped" else last_place}):
            return plain()

    return target, plain
