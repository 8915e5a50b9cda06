"""A filter and an average as products with a banded matrix, which was built beforehand, against the framework's
convolution and pooling. A matrix with the filter's taps reversed, and one that counts the padding, are bugs."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

TAPS = 5


def banded(filter: Tensor, size: int) -> Tensor:
    """The matrix that filters a signal of `size` samples, zeros around it."""
    matrix = torch.zeros(size, size, dtype=filter.dtype)
    for row in range(size):
        for tap in range(TAPS):
            column = row + tap - TAPS // 2
            if 0 <= column < size:
                matrix[row, column] = filter[tap]
    return matrix


@scenario(
    "filter matrix",
    "a filter and an average as products with a banded matrix",
    size=(16, 48),
    filter=TYPE_I,
    average=TYPE_I,
    reversed=TYPE_II,
    padding=TYPE_II,
    cause={"reversed": "MATHEMATICS|LEAF_MISMATCH", "padding": "MATHEMATICS|LEAF_MISMATCH"},  # A wrong table is both.
    suspect={"reversed": r"signal @ matrix|F\.conv1d", "padding": r"signal @ matrix|F\.avg_pool1d"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    signal = normal(seed, 2, size, dtype=dtype)
    pooled = variant in ("average", "padding")
    filter = torch.full((TAPS,), 1 / TAPS, dtype=torch.float64) if pooled else normal(seed + 1, TAPS, dtype=dtype)
    matrix = banded(filter.flip(0) if variant == "reversed" else filter, size).T.contiguous()
    if variant == "average":
        matrix = (matrix != 0) / (matrix != 0).sum(0, dtype=torch.float64)
    matrix = matrix.to(dtype)

    def target() -> dict[str, Tensor]:
        out = signal @ matrix
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, Tensor]:
        if pooled:
            out = F.avg_pool1d(signal[:, None], TAPS, 1, TAPS // 2, count_include_pad=False)[:, 0]
        else:
            out = F.conv1d(signal[:, None], filter[None, None], padding=TAPS // 2)[:, 0]
        return {"loss": out.square().mean(), "out": out}

    return target, reference
