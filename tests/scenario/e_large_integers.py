"""Taps that hold integers: identifiers beyond 2^53, where fp64 has no odd numbers, and counts. One that is off by one
is wrong, however large it is."""

import torch
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "large integers",
    "integer taps beyond 2^53",
    size=(16, 64),
    same=TYPE_I,
    off_by_one=TYPE_II,
    mask=TYPE_II,
    suspect={"off_by_one": r"key|\+|\*", "mask": r">|key"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    rank = torch.randint(0, 2**9, (size,), generator=torch.Generator().manual_seed(seed))
    row = torch.randint(0, 2**50, (size,), generator=torch.Generator().manual_seed(seed + 1))
    border = (rank[0].item() * 2**51 + row[0].item()) * 2 + 1

    def target() -> dict[str, Tensor]:
        key = rank * 2**52 + row * 2 + (2 if variant == "off_by_one" else 1)
        return {"key": key, "late": key >= border if variant == "mask" else key > border}

    def reference() -> dict[str, Tensor]:
        key = (rank * 2**51 + row) * 2 + 1
        return {"key": key, "late": key > border}

    return target, reference
