"""DeepSpeed 7985: the gradients are reduced before the last micro-batch was added."""

import copy

import torch
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "DeepSpeed 7985",
    "the last micro-batch is left out",
    size=(16, 48),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"^aten::add_\S* .* fc_\d$"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    many = copy.deepcopy(one)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def target() -> dict[str, torch.Tensor]:
        loss = torch.zeros((), dtype=dtype)
        for i, (part_x, part_y) in enumerate(zip(x.chunk(8), y.chunk(8), strict=True)):
            part = (many(part_x) - part_y).square().sum() / y.numel()
            loss = loss + part.detach()
            if variant == "fixed" or i < len(x.chunk(8)) - 1:
                part.backward()
        return {"loss": loss, **gradients(many)}

    def reference() -> dict[str, torch.Tensor]:
        loss = (one(x) - y).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(one)}

    return target, reference
