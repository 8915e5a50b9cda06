"""A resize as two products with a matrix of coefficients, which was computed beforehand, against the framework's
operation, which has the coefficients inside. A matrix with the corners aligned is another resize."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


def coefficients(out: int, size: int, aligned: bool) -> Tensor:
    """Row i holds the two weights of output i, in fp64."""
    row = torch.arange(out, dtype=torch.float64)
    source = row * (size - 1) / (out - 1) if aligned else ((row + 0.5) * size / out - 0.5).clamp(min=0)
    low = source.floor().long().clamp(max=size - 1)
    share = source - low
    matrix = torch.zeros(out, size, dtype=torch.float64)
    matrix[torch.arange(out), low] += 1 - share
    matrix[torch.arange(out), (low + 1).clamp(max=size - 1)] += share
    return matrix


@scenario(
    "resize",
    "a bilinear resize as products with matrices against F.interpolate",
    size=(5, 20),
    matrices=TYPE_I,
    double=TYPE_I,
    corners=TYPE_II,
    cause={"corners": "MATHEMATICS|LEAF_MISMATCH"},  # A wrong table is both.
    suspect={"corners": r"rows @ image|F\.interpolate"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    image = normal(seed, 2, 3, size, size + 2, dtype=dtype)
    high, wide = (2 * size, 2 * size + 4) if variant == "double" else (size + 3, 2 * size + 1)
    aligned = variant == "corners"
    rows = coefficients(high, size, aligned).to(dtype)
    columns = coefficients(wide, size + 2, aligned).T.contiguous().to(dtype)

    def target() -> dict[str, Tensor]:
        out = rows @ image @ columns
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, Tensor]:
        out = F.interpolate(image, (high, wide), mode="bilinear", align_corners=False)
        return {"loss": out.square().mean(), "out": out}

    return target, reference
