"""Healthy operations on numbers that their formats hold, where kernels have conventions of their own."""

from collections.abc import Callable

import pytest
import torch
from cuda_kernels import fault, on_the_cpu, wrong
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
    # Of no elements.
    "no segment": lambda: torch.segment_reduce(
        torch.zeros(0, dtype=BF16), "sum", lengths=torch.tensor([0]), initial=1.0
    ),
    "no dimension": lambda: torch.stack(torch.var_mean(torch.tensor(3.0), correction=0)),
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


@pytest.mark.parametrize(("capture", "outcome"), [("outputs", "TYPE_II"), ("leaves", "INCONCLUSIVE")])
def test_large_numbers_hide_no_bug(server: str, capture: str, outcome: str) -> None:
    def kernel(x: Tensor, a: Tensor, b: Tensor, value: float = 1) -> Tensor:
        return (x + a * b) * (1 + fault.get("factor", 0))

    def program() -> dict[str, Tensor]:
        x, a, b = t(1, 1, 1, dtype=FP64), t(1e171, 1e200, 3, dtype=FP64), t(0.3, 0.7, 0.1, dtype=FP64)
        return {"y": torch.addcmul(x, a, b)}

    with on_the_cpu({"addcmul": kernel}):
        assert plumbline.compare(program, None, server, capture=capture).verdict == "TYPE_I"
        with wrong("factor", 1e-6):
            verdict = plumbline.compare(program, None, server, capture=capture)
    assert verdict.verdict == outcome, verdict.explain()
