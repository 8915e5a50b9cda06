"""Healthy operations on numbers that their formats hold, where kernels have conventions of their own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import plumbline

aten = torch.ops.aten
BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64


def t(*values: float, dtype: torch.dtype = FP32) -> Tensor:
    return torch.tensor(values, dtype=dtype)


PROGRAMS: dict[str, Callable[[], Tensor]] = {
    # Squares of their roundings are beyond fp64.
    "large difference": lambda: t(1e171, dtype=FP64) - t(3, dtype=FP64),
    "large sum": lambda: t(1e200, 1.1e200, 3e199, dtype=FP64).sum(),
    "large exponential": lambda: t(500, dtype=FP64).exp(),
    # A divisor that Python gives is rounded to the tensor's 16 bits.
    "remainder fp16": lambda: torch.remainder(t(1, 2, 5, dtype=FP16), 0.1),
    "remainder bf16": lambda: torch.remainder(t(1, 2, 5, dtype=BF16), 0.1),
    "fmod bf16": lambda: torch.fmod(t(1, 2, 3, dtype=BF16), 0.1),
    # So are tensors of integers.
    "integers added": lambda: t(1, dtype=BF16) + torch.tensor([257]),
    "integers subtracted": lambda: torch.tensor([257]) - t(1, dtype=BF16),
    "integers multiplied": lambda: t(1.5, dtype=FP16) * torch.tensor([2051]),
    "integers divided by": lambda: t(1, dtype=BF16) / torch.tensor([299]),
    # The least denominator is a float.
    "saturated": lambda: aten.binary_cross_entropy_backward(
        t(1, dtype=FP64), t(1, dtype=FP64), torch.zeros(1, dtype=FP64)
    ),
}
TIES: dict[str, Callable[[], Tensor]] = {  # Kernels take the derivative from either side.
    f"hardswish {dtype}": lambda dtype=dtype: aten.hardswish_backward(t(1, 1, 1, dtype=dtype), t(3, -3, 1, dtype=dtype))
    for dtype in (FP32, FP64, BF16)
}


@pytest.mark.parametrize("name", [*PROGRAMS, *TIES])
def test_conventions_are_not_accused(server: str, name: str) -> None:
    verdict = plumbline.compare(lambda: {"y": (PROGRAMS | TIES)[name]()}, None, server, capture="outputs")
    assert verdict.verdict == "TYPE_I" or (name in TIES and verdict.verdict == "INCONCLUSIVE"), verdict.explain()
    assert verdict.coverage.opaque == 0
