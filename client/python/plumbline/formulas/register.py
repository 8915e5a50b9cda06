"""The table of formulas, and what they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..definition import Definition, Formula
from ..errors import PlumblineError

_COMPARISONS_MAX = 1 << 22

formulas: dict[str, Definition] = {}  # By name, "aten::add.Tensor".


def of(
    *names: str,
    numbers: Sequence[str] = (),
    instead: Callable[..., bool] | None = None,
    measured: Callable[..., dict[str, Any]] | None = None,
) -> Callable[[Formula], Formula]:
    """Registers the formula of operations, of aten where a name has no other namespace; those that this PyTorch lacks
    are passed over. `numbers`, `instead`, `measured`: as in Definition."""

    def register(formula: Formula) -> Formula:
        for name in names:
            namespace, _, own = name.rpartition("::")
            base, _, overload = own.partition(".")
            func = getattr(getattr(getattr(torch.ops, namespace or "aten"), base, None), overload, None)
            if func is not None:
                full = f"{namespace or 'aten'}::{own}"
                formulas[full] = Definition(func, formula, False, numbers, instead, measured)
        return formula

    return register


def derivative(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], wanted: Sequence[bool], gradient: Tensor
) -> list[Tensor | None]:
    """Of `function` in those inputs that are wanted, times `gradient`."""
    return derivatives(lambda *given: [function(*given)], inputs, wanted, [gradient])


def derivatives(
    function: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor],
    wanted: Sequence[bool],
    gradients: Sequence[Tensor],
) -> list[Tensor | None]:
    """Of several values, each times its gradient."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(want) for x, want in zip(inputs, wanted, strict=True)]
        values = tuple(function(*leaves))
        asked = tuple(leaf for leaf, want in zip(leaves, wanted, strict=True) if want)
        # The engine itself: torch.autograd.grad is watched for the step's own backward.
        found = torch.autograd.Variable._execution_engine.run_backward(
            values, tuple(gradients), False, False, asked, allow_unreachable=True, accumulate_grad=False
        )
    given = iter(found)
    return [next(given) if want else None for want in wanted]


def small(*counts: int) -> None:
    """Raises where a formula is too large to be written down: the operation stays opaque then."""
    if math.prod(counts) > _COMPARISONS_MAX:
        raise PlumblineError("too many comparisons to be written down")
