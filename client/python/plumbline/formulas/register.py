"""The table of formulas, and what they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..definition import Definition, Formula
from ..errors import PlumblineError

_COMPARISONS_MAX = 1 << 22

formulas: dict[str, Definition] = {}  # By name, "aten::add.Tensor".


def of(
    *names: str, numbers: Sequence[str] = (), instead: Callable[..., bool] | None = None
) -> Callable[[Formula], Formula]:
    """Registers the formula of operations of aten. `numbers`: Definition.numbers; `instead`: Definition.instead."""

    def register(formula: Formula) -> Formula:
        for name in names:
            base, _, overload = name.partition(".")
            func = getattr(getattr(torch.ops.aten, base), overload)
            formulas[f"aten::{name}"] = Definition(func, formula, by_user=False, numbers=numbers, instead=instead)
        return formula

    return register


def derivative(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], wanted: Sequence[bool], gradient: Tensor
) -> list[Tensor | None]:
    """Of `function` in those inputs that are wanted, times `gradient`."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(want) for x, want in zip(inputs, wanted, strict=True)]
        value = function(*leaves)
        asked = tuple(leaf for leaf, want in zip(leaves, wanted, strict=True) if want)
        # The engine itself: torch.autograd.grad is watched for the step's own backward.
        found = torch.autograd.Variable._execution_engine.run_backward(
            (value,), (gradient,), False, False, asked, allow_unreachable=True, accumulate_grad=False
        )
    given = iter(found)
    return [next(given) if want else None for want in wanted]


def small(*counts: int) -> None:
    """Raises where a formula is too large to be written down: the operation stays opaque then."""
    if math.prod(counts) > _COMPARISONS_MAX:
        raise PlumblineError("too many comparisons to be written down")
