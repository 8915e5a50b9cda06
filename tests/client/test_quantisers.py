"""A program that quantises, against one that does not: its grid is taken for a format, and the difference is policy."""

import pytest
import torch
from torch import Tensor

import plumbline


@pytest.mark.parametrize("size", [16, 160])  # Fewer elements than are worked out in tiles, and more.
def test_a_quantiser_is_a_policy(size: int, server: str) -> None:
    draw = torch.Generator().manual_seed(0)
    x, w, y = (torch.randn(size, size, generator=draw) for _ in range(3))

    def quantised(t: Tensor) -> Tensor:
        scale = t.abs().amax() / 127
        return torch.round(t / scale) * scale

    def computed(weight: Tensor, factor: float = 2) -> dict[str, Tensor]:
        moved = weight * factor + x
        return {"out": (moved * torch.tanh(weight)) @ y, "moved": moved * weight}

    def with_grid() -> dict[str, Tensor]:
        return computed(quantised(w))

    for pair in ((with_grid, lambda: computed(w)), (lambda: computed(w), with_grid)):
        verdict = plumbline.compare(*pair, server=server)
        assert (verdict.verdict, verdict.cause) == ("TYPE_I", "PRECISION_POLICY"), verdict.explain()
    verdict = plumbline.compare(with_grid, lambda: computed(quantised(w), 2.001), server=server)
    assert verdict.verdict == "TYPE_II", verdict.explain()
