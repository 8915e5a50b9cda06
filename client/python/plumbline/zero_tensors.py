"""Tensors that stand for zeros without holding any: forward-mode derivatives have them in place of what has none.

PyTorch 2.15 does not survive that a dispatch mode hands on either of the calls below for such a tensor: it ends the
process. What stands in their place has the same result."""

from __future__ import annotations

from typing import Any

import torch

_PRODUCT, _SUM = torch.ops.aten.mul.Scalar, torch.ops.aten.add.Scalar


def survivable(func: Any, args: Any) -> tuple[Any, Any]:
    """The call, or one in its place."""
    if (func is _PRODUCT or func is _SUM) and args[0]._is_zerotensor():
        if func is _PRODUCT and torch.result_type(*args) == args[0].dtype:
            return torch.ops.aten.alias.default, args[:1]
        return func, (args[0].clone(), *args[1:])
    return func, args
