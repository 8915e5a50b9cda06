"""A custom kernel that forgets (1 + w). Without its mathematics it is opaque, so that a difference behind it must not
be called rounding; with `plumbline.define` it is audited against its formula, and the wrong kernel is named."""

from collections.abc import Callable
from typing import Any

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

import plumbline

EPS = 1e-6


def formula(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * (1 + weight)


def kernel(name: str, one: float) -> Callable[[Tensor, Tensor], Tensor]:
    @torch.library.custom_op(f"plumbline_scenario::{name}", mutates_args=())
    def normed(x: Tensor, weight: Tensor) -> Tensor:
        scale = torch.rsqrt(x.square().sum(-1, keepdim=True) / x.shape[-1] + EPS)
        return (x * scale) * (one + weight)

    @normed.register_fake
    def _(x: Tensor, weight: Tensor) -> Tensor:
        return torch.empty_like(x)

    return normed


UNKNOWN = {"right": kernel("unknown_right", 1.0), "forgotten": kernel("unknown_forgotten", 0.0)}
DEFINED = {"right": kernel("defined_right", 1.0), "forgotten": kernel("defined_forgotten", 0.0)}


class Target:
    def __init__(self, variant: str, x: Tensor, weight: Tensor, y: Tensor) -> None:
        self.variant, self.kernels, self.given = variant, DEFINED, (x, weight, y)

    def __call__(self) -> dict[str, Tensor]:
        x, weight, y = self.given
        out = self.kernels[self.variant](x, weight)
        return {"loss": (out - y).square().mean(), "out": out}


def live(target: Target, reference: Program, server: str) -> Any:
    target.kernels = UNKNOWN
    unknown = plumbline.compare(target, reference, server)
    assert unknown.verdict != ("TYPE_I" if target.variant == "forgotten" else "TYPE_II"), unknown.explain()
    target.kernels = DEFINED
    for name in ("defined_right", "defined_forgotten"):
        plumbline.define(f"plumbline_scenario::{name}", formula)
    return plumbline.compare(target, reference, server)


@scenario(
    "custom kernel",
    "(1 + w) forgotten inside a custom kernel",
    size=(16, 64),
    live=live,
    right=TYPE_I,
    forgotten=TYPE_II,
    cause={"forgotten": "EXECUTION"},
    suspect={"forgotten": r"plumbline_scenario|self\.kernels"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, weight, y = (normal(seed + i, *shape, dtype=dtype) for i, shape in enumerate(((4, size), (size,), (4, size))))
    weight = 0.1 * weight

    def reference() -> dict[str, Tensor]:
        out = formula(x, weight)
        return {"loss": (out - y).square().mean(), "out": out}

    return Target(variant, x, weight, y), reference
