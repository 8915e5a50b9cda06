"""Buckets of positions by floor(x / 4) and by x // 4: the same integers, by a decision of numbers that are exact. For
negative positions cutting off is another division."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn


@scenario(
    "floor division",
    "floor(x / 4) against x // 4",
    size=(16, 64),
    integers=TYPE_I,
    floats=TYPE_I,
    cut_off=TYPE_II,
    suspect={"cut_off": r"torch\.div|// 4|table"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one, other = nn.Embedding(size // 2 + 2, 8).to(dtype), nn.Embedding(size // 2 + 2, 8).to(dtype)
    other.load_state_dict(one.state_dict())
    draw = torch.Generator().manual_seed(seed)
    position = torch.randint(-size, size, (3, size), generator=draw)
    real = normal(seed + 1, 3, size, dtype=dtype) * size / 4
    start = size // 4 + 1

    def step(table: nn.Embedding, bucket: Tensor) -> dict[str, Tensor]:
        loss = table((bucket.long() + start).clamp(0, size // 2 + 1)).square().mean()
        loss.backward()
        return {"loss": loss.detach(), "grad:weight": table.weight.grad}

    def target() -> dict[str, Tensor]:
        if variant == "floats":
            return step(one, torch.floor(real / 4))
        if variant == "cut_off":
            return step(one, torch.div(position, 4, rounding_mode="trunc"))
        return step(one, torch.floor(position / 4))

    def reference() -> dict[str, Tensor]:
        return step(other, (real if variant == "floats" else position) // 4)

    return target, reference
