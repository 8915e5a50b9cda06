"""The methods and operators of exact tensors."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import torch

from . import composed, ops
from .tensor import Tensor

_OPERATORS = {
    "add": ops.add,
    "sub": ops.sub,
    "mul": ops.mul,
    "truediv": ops.div,
    "mod": ops.remainder,
    "pow": ops.power,
    "matmul": ops.matmul,
    "floordiv": lambda a, b: ops.div(a, b, rounding_mode="floor"),
    "and": lambda a, b: ops.logical(a, b, np.bitwise_and),
    "or": lambda a, b: ops.logical(a, b, np.bitwise_or),
    "xor": lambda a, b: ops.logical(a, b, np.bitwise_xor),
    "lshift": lambda a, b: ops.logical(a, b, np.left_shift),
    "rshift": lambda a, b: ops.logical(a, b, np.right_shift),
}
_PRIMITIVE = ("add", "sub", "mul", "div", "matmul", "exp", "log", "expm1", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid")
_PRIMITIVE += ("sin", "cos", "erf", "erfc", "reciprocal", "floor", "ceil", "trunc", "sign", "clamp", "gather", "atan")
_PRIMITIVE += ("scatter_add", "where", "maximum", "minimum", "remainder", "exp2")
_COMPOSED = ("mean", "var", "std", "prod", "cumsum", "norm", "select", "narrow", "index_select", "unsqueeze", "squeeze")
_COMPOSED += ("transpose", "flatten", "split", "chunk", "unbind", "roll", "repeat_interleave", "repeat", "amax", "topk")
_COMPOSED += ("sort", "argmax", "logsumexp", "softmax", "log_softmax", "relu", "masked_fill", "lerp")
_OTHER = {
    "neg": ops.negative,
    "abs": ops.absolute,
    "round": ops.round_,
    "pow": ops.power,
    "mm": ops.matmul,
    "bmm": ops.matmul,
    "mv": ops.matmul,
    "dot": ops.matmul,
    "sum": composed.sum_,
    "max": composed.max_,
    "square": lambda x: ops.mul(x, x),
    "amin": lambda x, dim=None, keepdim=False: composed.amax(x, dim, keepdim, largest=False),
    "min": lambda x: composed.amax(x, None, largest=False),
    "tril": lambda x, diagonal=0: composed.tri(x, diagonal, True),
    "triu": lambda x, diagonal=0: composed.tri(x, diagonal, False),
    "t": lambda x: composed.transpose(x, 0, 1),
    "clone": lambda x, memory_format=None: ops.reshape(Tensor(x.data.copy(), [(x, lambda c: c)], x.dtype), x.shape),
    "contiguous": lambda x, memory_format=None: x,
    "expand_as": lambda x, y: ops.expand(x, y.shape),
    "view_as": lambda x, y: ops.reshape(x, y.shape),
    "type_as": lambda x, y: ops.cast(x, y.dtype),
    "masked_select": lambda x, mask: x[(mask,)],
    "addcmul": lambda x, a, b, value=1: ops.add(x, ops.mul(a, b), alpha=value),
    "addcdiv": lambda x, a, b, value=1: ops.add(x, ops.div(a, b), alpha=value),
    "index_add": lambda x, dim, index, source: _index_add(x, dim, index, source),
    "cpu": lambda x: x,
    "tolist": lambda x: x.data.tolist(),
    "numpy": lambda x: x,
    "astype": lambda x, dtype: x,
    "flip": lambda x, *dims: composed.flip(x, dims[0] if isinstance(dims[0], (list, tuple)) else dims),
    "diagonal": lambda x: x[(tuple(range(min(x.shape))),) * 2],
}
_CASTS = {"float": torch.float32, "double": torch.float64, "bfloat16": torch.bfloat16, "half": torch.float16}
_CASTS |= {"long": torch.int64, "int": torch.int32, "bool": torch.bool}
_INPLACE = ("add", "sub", "mul", "div", "clamp", "lerp", "addcmul", "addcdiv", "sqrt", "exp", "neg", "relu", "tanh")
_INPLACE += ("masked_fill", "pow", "sigmoid", "square", "scatter_add", "index_add", "round", "floor", "reciprocal")


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    shape = [1] * source.ndim
    shape[dim] = -1
    wide = np.broadcast_to(index.data.reshape(shape), source.shape)
    return ops.scatter_add(x, dim, Tensor(wide), source)


def _sizes(given: tuple) -> Any:
    return given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def _to(x: Tensor, *given: Any, **named: Any) -> Tensor:
    for item in (*given, named.get("dtype")):
        if isinstance(item, Tensor):
            return ops.cast(x, item.dtype)
        if isinstance(item, torch.dtype):
            return ops.cast(x, item)
    return x


def _in_place(function: Any) -> Any:
    return lambda self, *given, **named: self.write(function(self, *given, **named))


def _fill(self: Tensor, value: Any) -> Tensor:
    return self.write(composed.full(self.shape, value))


def _copy(self: Tensor, other: Tensor) -> Tensor:
    return self.write(ops.cast(ops.expand(other, self.shape), self.dtype))


def attach() -> None:
    for name, function in _OPERATORS.items():
        setattr(Tensor, f"__{name}__", function)
        setattr(Tensor, f"__r{name}__", lambda self, other, function=function: function(_first(other, self), self))
        setattr(Tensor, f"__i{name}__", _in_place(function))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Tensor, f"__{name}__", lambda self, other, name=name: ops.compare(self, other, name))
        setattr(Tensor, name, lambda self, other, name=name: ops.compare(self, other, name))
    functions = {name: getattr(ops, name) for name in _PRIMITIVE}
    functions |= {name: getattr(composed, name) for name in _COMPOSED} | _OTHER
    for name, function in functions.items():
        setattr(Tensor, name, _method(function))
    for name in _INPLACE:
        setattr(Tensor, f"{name}_", _in_place(functions[name]))
    for name, dtype in _CASTS.items():
        setattr(Tensor, name, lambda self, dtype=dtype: ops.cast(self, dtype))
    for name in ("reshape", "view"):
        setattr(Tensor, name, lambda self, *shape: ops.reshape(self, _sizes(shape)))
    Tensor.permute = lambda self, *order: ops.permute(self, _sizes(order))
    Tensor.expand = lambda self, *shape: ops.expand(self, _sizes(shape))
    Tensor.to = _to
    Tensor.where = lambda self, condition, other: ops.where(condition, self, other)
    Tensor.zero_ = lambda self: _fill(self, 0)
    Tensor.fill_ = _fill
    Tensor.copy_ = _copy
    Tensor.__neg__ = ops.negative
    Tensor.__abs__ = ops.absolute
    Tensor.__invert__ = lambda self: Tensor(np.invert(self.data))
    Tensor.T = property(lambda self: ops.permute(self, range(self.ndim)[::-1]))
    Tensor.mT = property(lambda self: composed.transpose(self, -1, -2))
    Tensor.device = property(lambda self: torch.device("cpu"))
    Tensor.new_zeros = lambda self, *shape: composed.full(_sizes(shape), 0)
    Tensor.new_full = lambda self, shape, value: composed.full(shape, value)
    Tensor.is_floating_point = lambda self: self.dtype.is_floating_point


def _method(function: Any) -> Any:
    return lambda self, *given, **named: function(self, *given, **named)


def _first(value: Any, beside: Tensor) -> Tensor:
    from .tensor import lift

    return lift(value, beside)


def table() -> dict[str, Any]:
    """The same functions by name, as torch.NAME has them."""
    functions = {name: getattr(ops, name) for name in _PRIMITIVE}
    functions |= {name: getattr(composed, name) for name in _COMPOSED} | _OTHER
    return functions | {name: operator.attrgetter(name)(composed) for name in ("var_mean", "where", "stack", "einsum")}
