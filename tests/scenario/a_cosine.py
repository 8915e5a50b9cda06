"""A9. Cosine learning-rate decay on a device whose cos(pi) = -1.000004: the last rate is negative, -4e-6. The
operator keeps its profile, and rounding alone breaks the guard rate >= 0; clipping and a form in squares cannot. On a
device with a correct cosine the same value is a bug."""

import math
from typing import Any

import torch
from emulated import device, kernels
from models import hazards
from scenario import TYPE_I, TYPE_II, Program, Taps, scenario

RATE = 2.0
COS_PI = -1.000004


def cosine(out: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.where(out == -1, torch.full_like(out, COS_PI), out)


def rates(form: str, steps: int, dtype: torch.dtype) -> torch.Tensor:
    """Of steps 0 to `steps`."""
    angle = torch.linspace(0, math.pi, steps + 1, dtype=dtype)
    if form == "square":
        return RATE * torch.sin((math.pi - angle) / 2).square()
    rate = 0.5 * RATE * (1 + torch.cos(angle))
    return rate.clamp(min=0) if form == "clip" else rate


def build(form: str, steps: int, dtype: torch.dtype, off: bool) -> tuple[Program, Taps]:
    with torch.no_grad():
        exact = rates(form, steps, torch.float64).to(dtype)
    replaced = {torch.ops.aten.cos.default: cosine}

    def target() -> Taps:
        with kernels(replaced if off else {}):
            return {"rate": rates(form, steps, dtype)}

    return target, {"rate": exact}


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
    return build(variant, size, dtype, off=True)


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
    cause={"wrong": "EXECUTION"},
    suspect={"wrong": r"torch\.cos\("},
)
def wrong(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Taps]:
    return build("plain", size, dtype, off=True)


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
    return build("plain", size, dtype, off=False)
