"""A9. Cosine learning-rate decay on a device whose cos(pi) = -1.000004: the last rate is negative, -4e-6. The
operator keeps its profile, and rounding alone breaks the guard rate >= 0; clipping and a form in squares cannot. On a
device with a correct cosine the same value is a bug."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from models import hazards
from scenario import TYPE_I, TYPE_II, Program, Taps, scenario
from torch.utils._python_dispatch import TorchDispatchMode

RATE = 2.0
COS_PI = -1.000004


class _Device(TorchDispatchMode):
    """What such a device computes: entered before the capture, so that it lies below it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.cos.default and out.dtype == torch.float32:
            out = torch.where(out == -1, torch.full_like(out, COS_PI), out)
        return out


@contextlib.contextmanager
def device() -> Iterator[None]:
    with _Device():
        yield


def rates(form: str, steps: int, dtype: torch.dtype) -> torch.Tensor:
    """Of steps 0 to `steps`."""
    angle = torch.linspace(0, math.pi, steps + 1, dtype=dtype)
    if form == "square":
        return RATE * torch.sin((math.pi - angle) / 2).square()
    rate = 0.5 * RATE * (1 + torch.cos(angle))
    return rate.clamp(min=0) if form == "clip" else rate


def build(form: str, steps: int, dtype: torch.dtype) -> tuple[Program, Taps]:
    with torch.no_grad():
        exact = rates(form, steps, torch.float64).to(dtype)
    return lambda: {"rate": rates(form, steps, dtype)}, {"rate": exact}


def says(variant: str, verdict: Any) -> None:
    found = hazards(verdict)
    if variant == "plain":
        assert "Rounding alone breaks the guard rate >= 0" in found["guard"].sentence, verdict.explain()
        assert found["guard"].place.op.startswith("aten::cos") and "clamp" in found["guard"].remedy
    else:
        assert "guard" not in found, verdict.explain()


@scenario(
    "A9 cosine",
    "a learning rate that rounding makes negative, and two remedies",
    size=(10, 200),
    says=says,
    options={"profile": "ascend-910", "capture": "outputs", "guards": {"rate": (0, None)}},
    device=device,
    plain=TYPE_I,
    clip=TYPE_I,
    square=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Taps]:
    return build(variant, size, dtype)


def says_wrong(variant: str, verdict: Any) -> None:
    assert verdict.suspect.op.startswith("aten::cos"), verdict.explain()
    assert "range" in verdict.message.suspect_detail, verdict.explain()


@scenario(
    "A9 cosine out of range",
    "the same value on a device that promises a correct cosine",
    size=(10, 200),
    says=says_wrong,
    options={"profile": "pytorch-cpu", "capture": "outputs", "guards": {"rate": (0, None)}},
    device=device,
    wrong=TYPE_II,
)
def wrong(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Taps]:
    return build("plain", size, dtype)


def says_right(variant: str, verdict: Any) -> None:
    assert "guard" not in hazards(verdict), verdict.explain()


@scenario(
    "A9 cosine in range",
    "a device with a correct cosine",
    size=(10, 200),
    says=says_right,
    options={"profile": "pytorch-cpu", "capture": "outputs", "guards": {"rate": (0, None)}},
    right=TYPE_I,
)
def right(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Taps]:
    return build("plain", size, dtype)
