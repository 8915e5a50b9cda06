"""Triton 2680: a fused feed-forward in fp16 that keeps what lies between its products in fp32, against one that rounds
there."""

from typing import Any

import torch
import torch.nn.functional as F
from emulated import aten, device, half, kernels
from models import normal
from scenario import TYPE_I, Program, scenario


class _Fused:
    """The kernels of one fused operation: each reads what the one before had before it was stored."""

    def __init__(self) -> None:
        self.unrounded: torch.Tensor | None = None

    def product(self, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if self.unrounded is None:
            self.unrounded = half(16)(a, b)
            return self.unrounded.to(out.dtype)
        return (self.unrounded @ b.float()).to(out.dtype)

    def gelu(self, out: torch.Tensor, x: torch.Tensor, **_: Any) -> torch.Tensor:
        assert self.unrounded is not None
        self.unrounded = F.gelu(self.unrounded)
        return self.unrounded.to(out.dtype)


@scenario(
    "Triton 2680",
    "a fused feed-forward in fp16",
    size=(16, 64),
    options={"profile": "cuda-sm90+elided", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.float16 if dtype == torch.float32 else dtype
    shapes = [(8, size), (size, 2 * size), (2 * size, 8)]
    x, up, down = (normal(seed + i, *shape, dtype=dtype).to(short) for i, shape in enumerate(shapes))

    def plain() -> dict[str, torch.Tensor]:
        return {"out": F.gelu(x @ up) @ down}

    def target() -> dict[str, torch.Tensor]:
        fused = _Fused()
        with kernels({aten.mm.default: fused.product, aten.gelu.default: fused.gelu}):
            return plain()

    return target, plain
