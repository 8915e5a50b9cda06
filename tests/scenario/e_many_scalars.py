"""Ten thousand equal scalars, each a leaf of its own, against one of them: whatever is matched with whatever, the
verdict is one, and it comes in time. One scalar that differs is found among the others."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

COUNT = 10_000


@scenario(
    "many scalars",
    "ten thousand equal scalars",
    size=(4, 8),
    equal=TYPE_I,
    one_differs=TYPE_II,
    cause={"one_differs": "MATHEMATICS|LEAF_MISMATCH"},
    suspect={"one_differs": r"scalars|leaf"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, COUNT, size, dtype=dtype)
    scalars = [torch.tensor(0.3, dtype=dtype) for _ in range(COUNT)]
    if variant == "one_differs":
        scalars[seed % COUNT].mul_(1.01)

    def target() -> dict[str, Tensor]:
        return {"out": torch.stack(scalars) @ x}

    def reference() -> dict[str, Tensor]:
        return {"out": (x * scalars[0 if seed % COUNT else 1]).sum(0)}

    return target, reference
