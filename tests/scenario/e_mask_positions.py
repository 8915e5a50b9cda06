"""Positions that are counted from a mask of floats, which is what rows of zeros leave, against positions as a list."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "mask positions",
    "positions counted from a mask of floats",
    size=(4, 12),
    same=TYPE_I,
    scaled=TYPE_II,
    shifted=TYPE_II,
    suspect={"scaled": r"mul|scale", "shifted": r"cumsum|position|index"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    lengths = [size, size - 2, 2]
    seen = torch.tensor([[1.0] * n + [0.0] * (size - n) for n in lengths], dtype=dtype)
    x = normal(seed, 3, size, 6, dtype=dtype) * seen[..., None]
    table = normal(seed + 1, size + 2, 6, dtype=dtype).requires_grad_()
    weight = (normal(seed + 2, 6, 4, dtype=dtype) / 2).requires_grad_()
    shift = 1 if variant == "shifted" else 0
    scale = 1.001 if variant == "scaled" else 1.0

    def taps(position: torch.Tensor, mask: torch.Tensor, scale: float) -> dict[str, torch.Tensor]:
        h = torch.tanh((x + table[position]) @ weight)
        loss = (h.square().sum(-1) * mask).sum() / mask.sum() * scale
        grads = torch.autograd.grad(loss, [table, weight])
        return {"loss": loss.detach(), **{f"grad:{n}": g for n, g in zip(("table", "weight"), grads, strict=True)}}

    def target() -> dict[str, torch.Tensor]:
        mask = (x.abs().sum(-1) != 0).to(dtype)
        position = ((mask.cumsum(1) - 1 + shift) * mask + (size + 1) * (1 - mask)).long()
        return taps(position, mask, scale)

    def reference() -> dict[str, torch.Tensor]:
        position = torch.tensor([[i if i < n else size + 1 for i in range(size)] for n in lengths])
        return taps(position, seen, 1.0)

    return target, reference
