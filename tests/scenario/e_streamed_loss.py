"""A cross entropy over the vocabulary in parts, with a running maximum and a running sum, so that the logits never
stand together, against the whole. A sum that is not rescaled when the maximum grows is a bug."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

WIDTH, PARTS = 12, 4


@scenario(
    "streamed loss",
    "a cross entropy over parts of the vocabulary",
    size=(16, 64),
    parts=TYPE_I,
    not_rescaled=TYPE_II,
    unplaced={"not_rescaled": "The bug is a product that is missing: no operation of either program is the wrong one."},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    hidden = normal(seed, 6, WIDTH, dtype=dtype)
    weight = normal(seed + 1, PARTS * size, WIDTH, dtype=dtype).requires_grad_()
    y = torch.randint(0, PARTS * size, (6,), generator=torch.Generator().manual_seed(seed + 2))

    def taps(loss: Tensor) -> dict[str, Tensor]:
        (grad,) = torch.autograd.grad(loss, [weight])
        return {"loss": loss.detach(), "grad:weight": grad}

    def target() -> dict[str, Tensor]:
        most = torch.full((6,), -float("inf"), dtype=dtype)
        total, picked = torch.zeros(6, dtype=dtype), torch.zeros(6, dtype=dtype)
        for part in range(PARTS):
            low = part * size
            logits = hidden @ weight[low : low + size].T
            new = torch.maximum(most, logits.amax(-1).detach())
            if variant != "not_rescaled":
                total = total * torch.exp(most - new)
            total, most = total + torch.exp(logits - new[:, None]).sum(-1), new
            here = (y >= low) & (y < low + size)
            found = logits.gather(1, (y - low).clamp(0, size - 1)[:, None])[:, 0]
            picked = picked + torch.where(here, found, torch.zeros_like(found))
        return taps((most + total.log() - picked).mean())

    return target, lambda: taps(F.cross_entropy(hidden @ weight.T, y))
