"""Sentences padded to a longer row, with a mask, against rows as they are. Padding that is looked at is a bug."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

HEAD = 16


@scenario(
    "padded batch",
    "rows padded to a longer length",
    size=(5, 20),
    padded=TYPE_I,
    looked_at=TYPE_II,
    cause={"looked_at": "MATHEMATICS|LEAF_MISMATCH"},  # Rows that are looked at are other data, too.
    suspect={"looked_at": r"softmax|scaled_dot|@|mask"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = normal(seed, 2, size, HEAD, dtype=dtype)
    longer = F.pad(x, (0, 0, 0, 8 - size % 8))
    weight = (normal(seed + 1, HEAD, 3 * HEAD, dtype=dtype) / 4).requires_grad_()

    def taps(out: Tensor) -> dict[str, Tensor]:
        loss = out.square().mean()
        (grad,) = torch.autograd.grad(loss, [weight])
        return {"loss": loss.detach(), "grad:weight": grad}

    def target() -> dict[str, Tensor]:
        q, k, v = (longer @ weight).chunk(3, -1)
        mask = torch.zeros(longer.shape[1], dtype=dtype)
        if variant == "padded":
            mask[size:] = -float("inf")
        out = torch.softmax(q @ k.transpose(-2, -1) / HEAD**0.5 + mask, -1) @ v
        return taps(out[:, :size])

    def reference() -> dict[str, Tensor]:
        q, k, v = (x @ weight).chunk(3, -1)
        return taps(torch.softmax(q @ k.transpose(-2, -1) / HEAD**0.5, -1) @ v)

    return target, reference
