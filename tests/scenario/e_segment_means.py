"""Means over the documents of a packed row: by comparing numbers that a running sum of floats gives them, against each
document by itself. Such sums are exact, and equality of what is exact has one outcome."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "segment means",
    "documents told apart by a running sum of floats",
    size=(3, 9),
    same=TYPE_I,
    scaled=TYPE_II,
    border=TYPE_II,
    suspect={"scaled": r"mul|scale", "border": r"mean|document|split|sum"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    lengths = [size, size + 2, size + 1]
    x = normal(seed, sum(lengths), 5, dtype=dtype)
    weight = (normal(seed + 1, 5, 3, dtype=dtype)).requires_grad_()
    starts = torch.zeros(sum(lengths))
    starts[[lengths[0], lengths[0] + lengths[1]]] = 1
    scale = 1.001 if variant == "scaled" else 1.0

    def taps(means: Tensor) -> dict[str, Tensor]:
        loss = means.tanh().sum(1).mean()
        (grad,) = torch.autograd.grad(loss, [weight])
        return {"loss": loss.detach(), "grad:weight": grad}

    def target() -> dict[str, Tensor]:
        document = starts.cumsum(0)
        same = (document[:, None] == document[None]).to(dtype)
        return taps(same @ (x @ weight).square() / same.sum(1, keepdim=True) * scale)

    def reference() -> dict[str, Tensor]:
        parts = [size, size + 1, size + 2] if variant == "border" else lengths
        rows = [z.mean(0, keepdim=True).expand(len(z), 3) for z in (x @ weight).square().split(parts)]
        return taps(torch.cat(rows))

    return target, reference
