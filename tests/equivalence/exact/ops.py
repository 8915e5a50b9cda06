"""Primitive operations on exact tensors, each with its derivative. Everything else is composed of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from flint import arb, fmpz

from .reading import TIE, tied
from .tensor import (
    NATIVE,
    Tensor,
    elementwise,
    equal_to,
    floats,
    is_float,
    less_than,
    lift,
    objects,
    unbroadcast,
    zeros,
)

TWO_OVER_ROOT_PI = 2 / arb.pi().sqrt()
LOG_2 = arb(2).log()


def _float(x: Tensor) -> Tensor:
    return x if is_float(x.data) else Tensor(floats(x.data))


def _pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    a = lift(a, b if isinstance(b, Tensor) else None)
    b = lift(b, a)
    if is_float(a.data) != is_float(b.data):
        a, b = _float(a), _float(b)
    return a, b


def _binary(a: Any, b: Any, value: Any, back_a: Any, back_b: Any) -> Tensor:
    a, b = _pair(a, b)
    data = value(a.data, b.data)
    if not is_float(a.data):
        return Tensor(np.asarray(data))
    return Tensor(
        objects(data),
        [
            (a, lambda c: unbroadcast(back_a(c, a.data, b.data), a.shape)),
            (b, lambda c: unbroadcast(back_b(c, a.data, b.data), b.shape)),
        ],
    )


def add(a: Any, b: Any, alpha: Any = 1) -> Tensor:
    if not (isinstance(alpha, int) and alpha == 1):
        b = mul(b, alpha)
    return _binary(a, b, lambda x, y: x + y, lambda c, x, y: c, lambda c, x, y: c)


def sub(a: Any, b: Any, alpha: Any = 1) -> Tensor:
    if not (isinstance(alpha, int) and alpha == 1):
        b = mul(b, alpha)
    return _binary(a, b, lambda x, y: x - y, lambda c, x, y: c, lambda c, x, y: -c)


def mul(a: Any, b: Any) -> Tensor:
    return _binary(a, b, lambda x, y: x * y, lambda c, x, y: c * y, lambda c, x, y: c * x)


def div(a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    a, b = _pair(a, b)
    if rounding_mode is not None:
        if not is_float(a.data):
            whole = np.floor_divide(a.data, b.data)
            up = (rounding_mode == "trunc") & (a.data % b.data != 0) & ((a.data < 0) != (b.data < 0))
            return Tensor(whole + up.astype(whole.dtype))
        return unary_step(div(a, b), {"floor": _floor, "trunc": _trunc}[rounding_mode])
    a, b = _float(a), _float(b)
    return _binary(a, b, lambda x, y: x / y, lambda c, x, y: c / y, lambda c, x, y: -c * x / (y * y))


def remainder(a: Any, b: Any) -> Tensor:
    a, b = _pair(a, b)
    if not is_float(a.data):
        return Tensor(np.remainder(a.data, b.data))
    return sub(a, mul(unary_step(div(a, b), _floor).detach(), b))


def _integer_power(x: arb, n: int) -> arb:
    """A ball around zero has powers, which its logarithm, by which arb goes about it, has not."""
    if n < 0:
        return 1 / _integer_power(x, -n)
    result = arb(1)
    for _ in range(n):
        result = result * x
    return result


def power(a: Any, b: Any) -> Tensor:
    if isinstance(b, int) or (isinstance(b, float) and b == int(b)):
        n = int(b)
        a = lift(a)
        if not is_float(a.data):
            return Tensor(a.data**n)
        to = {m: elementwise(lambda v, m=m: _integer_power(v, m), 1) for m in (n, n - 1)}
        return Tensor(to[n](a.data), [(a, lambda c: c * n * to[n - 1](a.data))])
    a, b = _pair(a, b)
    a, b = _float(a), _float(b)
    return _binary(
        *(a, b, lambda x, y: x**y),
        *(lambda c, x, y: c * y * x ** (y - arb(1)), lambda c, x, y: c * x**y * _log(x)),
    )


def _smooth(name: str, value: Any, derivative: Callable[[Any, Any], Any]) -> Callable[[Tensor], Tensor]:
    function, slope = elementwise(value, 1), elementwise(derivative, 2)

    def op(x: Any) -> Tensor:
        x = _float(lift(x))
        y = function(x.data)
        return Tensor(y, [(x, lambda c: c * slope(x.data, y))])

    op.__name__ = name
    return op


def _sigmoid(x: arb) -> arb:
    return 1 / (1 + (-x).exp()) if x > 0 else x.exp() / (1 + x.exp())


def _exp(x: arb) -> arb:
    return x.exp() if x.is_finite() else (arb(0) if x < 0 else x)


_log = elementwise(lambda x: x.log(), 1)
exp = _smooth("exp", _exp, lambda x, y: y)
log = _smooth("log", lambda x: x.log(), lambda x, y: 1 / x)
expm1 = _smooth("expm1", lambda x: x.expm1(), lambda x, y: y + 1)
log1p = _smooth("log1p", lambda x: x.log1p(), lambda x, y: 1 / (1 + x))
sqrt = _smooth("sqrt", lambda x: arb(0) if x.contains(0) else x.sqrt(), lambda x, y: 1 / (2 * y))
rsqrt = _smooth("rsqrt", lambda x: x.rsqrt(), lambda x, y: -y / (2 * x))
tanh = _smooth("tanh", lambda x: x.tanh(), lambda x, y: 1 - y * y)
sigmoid = _smooth("sigmoid", _sigmoid, lambda x, y: y * (1 - y))
sin = _smooth("sin", lambda x: x.sin(), lambda x, y: x.cos())
cos = _smooth("cos", lambda x: x.cos(), lambda x, y: -x.sin())
erf = _smooth("erf", lambda x: x.erf(), lambda x, y: TWO_OVER_ROOT_PI * (-x * x).exp())
erfc = _smooth("erfc", lambda x: x.erfc(), lambda x, y: -TWO_OVER_ROOT_PI * (-x * x).exp())
exp2 = _smooth("exp2", lambda x: (x * LOG_2).exp(), lambda x, y: y * LOG_2)
neg = _smooth("neg", lambda x: -x, lambda x, y: arb(-1))
reciprocal = _smooth("reciprocal", lambda x: 1 / x, lambda x, y: -y * y)
atan = _smooth("atan", lambda x: x.atan(), lambda x, y: 1 / (1 + x * x))


def negative(x: Any) -> Tensor:
    x = lift(x)
    return neg(x) if is_float(x.data) else Tensor(-x.data)


def _sign_of(x: arb) -> arb:
    return arb(0) if tied(x, arb(0)) else arb(1) if x > 0 else arb(-1)


_sign = elementwise(_sign_of, 1)


def _whole(x: arb) -> fmpz | None:
    """The integer that 200 bits cannot tell from x, if there is one."""
    near = (x + arb(0.5)).floor().mid()
    return near if tied(x, near) or abs(x - near) < TIE else None  # Next to zero no share of x is small.


def _floor(x: arb) -> arb:
    near = _whole(x)
    return near if near is not None else x.floor()


def _trunc(x: arb) -> arb:
    near = _whole(x)
    return near if near is not None else x.floor() if x > 0 else -((-x).floor())


def _round(x: arb) -> arb:
    """To the nearest, ties to even."""
    half = (x - arb(0.5)).floor() + 1
    twice = x * 2
    near = (twice + arb(0.5)).floor().mid()
    if tied(twice, near) and int(float(near)) % 2 != 0:
        low = (int(float(near)) - 1) // 2
        return arb(low if low % 2 == 0 else low + 1)
    whole = _whole(x)
    return whole if whole is not None else half


def unary_step(x: Any, function: Callable[[arb], arb]) -> Tensor:
    """A function whose derivative is zero wherever it has one."""
    x = _float(lift(x))
    return Tensor(elementwise(function, 1)(x.data), [(x, lambda c: c * arb(0))])


def floor(x: Any) -> Tensor:
    return unary_step(x, _floor)


def ceil(x: Any) -> Tensor:
    return unary_step(x, lambda v: -_floor(-v))


def trunc(x: Any) -> Tensor:
    return unary_step(x, _trunc)


def round_(x: Any) -> Tensor:
    return unary_step(x, _round)


def sign(x: Any) -> Tensor:
    x = lift(x)
    return unary_step(x, _sign_of) if is_float(x.data) else Tensor(np.sign(x.data))


def absolute(x: Any) -> Tensor:
    x = lift(x)
    if not is_float(x.data):
        return Tensor(np.abs(x.data))
    s = _sign(x.data)
    return Tensor(objects(x.data * s), [(x, lambda c: c * s)])


def where(condition: Tensor, a: Any, b: Any) -> Tensor:
    a, b = _pair(a, b)
    mask = condition.data.astype(bool)
    data = np.where(mask, a.data, b.data)
    zero = arb(0)
    return Tensor(
        objects(data) if is_float(a.data) else data,
        [
            (a, lambda c: unbroadcast(np.where(mask, c, zero), a.shape)),
            (b, lambda c: unbroadcast(np.where(mask, zero, c), b.shape)),
        ],
    )


def compare(a: Any, b: Any, kind: str) -> Tensor:
    a, b = _pair(a, b)
    if not is_float(a.data):
        native = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
        native |= {"eq": np.equal, "ne": np.not_equal}
        return Tensor(np.asarray(native[kind](a.data, b.data)))
    if kind in ("eq", "ne"):
        same = equal_to(a.data, b.data).astype(bool)
        return Tensor(same if kind == "eq" else ~same)
    if kind in ("gt", "le"):
        below = less_than(b.data, a.data).astype(bool)
        return Tensor(below if kind == "gt" else ~below)
    below = less_than(a.data, b.data).astype(bool)
    return Tensor(below if kind == "lt" else ~below)


def logical(a: Any, b: Any, function: Any) -> Tensor:
    a, b = _pair(a, b)
    return Tensor(np.asarray(function(a.data, b.data)))


def maximum(a: Any, b: Any) -> Tensor:
    """The cotangent goes to the larger; equal ones share it."""
    return _extreme(a, b, compare(a, b, "gt"))


def minimum(a: Any, b: Any) -> Tensor:
    return _extreme(a, b, compare(a, b, "lt"))


def _extreme(a: Any, b: Any, first: Tensor) -> Tensor:
    same = compare(a, b, "eq")
    picked = where(first, a, b)
    if not is_float(picked.data):
        return picked
    share = objects(np.where(same.data, arb(0.5), np.where(first.data, arb(1), arb(0))))
    a, b = _pair(a, b)
    return Tensor(
        picked.data,
        [
            (a, lambda c: unbroadcast(c * share, a.shape)),
            (b, lambda c: unbroadcast(c * (arb(1) - share), b.shape)),
        ],
    )


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """The cotangent passes at the limits themselves, as PyTorch's does; a lower limit above the upper one yields."""
    x = lift(x)
    inside = np.ones(x.shape, dtype=bool)
    data = x.data
    for limit, beyond in ((min, "lt"), (max, "gt")):
        if limit is not None:
            limit = lift(limit, x)
            inside &= ~compare(x, limit, beyond).data
            data = np.where(compare(Tensor(data), limit, beyond).data, limit.data, data)
    if not is_float(x.data):
        return Tensor(data)
    return Tensor(objects(data), [(x, lambda c: np.where(inside, c, arb(0)))])


def matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.ndim == 1 and b.ndim == 1:
        return total(mul(a, b))
    if a.ndim == 1:
        return reshape(matmul(reshape(a, (1, -1)), b), b.shape[:-2] + b.shape[-1:])
    if b.ndim == 1:
        return reshape(matmul(a, reshape(b, (-1, 1))), a.shape[:-1])
    return Tensor(
        _product(a.data, b.data),
        [
            (a, lambda c: unbroadcast(_product(c, np.swapaxes(b.data, -1, -2)), a.shape)),
            (b, lambda c: unbroadcast(_product(np.swapaxes(a.data, -1, -2), c), b.shape)),
        ],
    )


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if not is_float(a):
        return a @ b
    return (
        objects(np.matmul(a, b))
        if a.shape[-1]
        else zeros(np.broadcast_shapes(a.shape[:-1] + (1,), b.shape[:-2] + (1, b.shape[-1])))
    )


def axes(x: Tensor, dim: Any) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(x.ndim))
    return tuple(d % max(x.ndim, 1) for d in (dim if isinstance(dim, (tuple, list)) else (dim,)))


def total(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    over = axes(x, dim)
    if not is_float(x.data):
        return Tensor(np.asarray(x.data.sum(axis=over, keepdims=keepdim, dtype=np.int64)))
    data = np.sum(x.data, axis=over, keepdims=keepdim, initial=arb(0)) if x.ndim else x.data

    def back(c: np.ndarray) -> np.ndarray:
        return np.broadcast_to(c if keepdim else np.expand_dims(c, over), x.shape)

    return Tensor(objects(data), [(x, back)])


def order_of(data: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Indices that sort along an axis, stable; equal numbers keep their order."""
    import functools

    from .reading import less

    def sort_row(row: np.ndarray) -> np.ndarray:
        def key(i: int, j: int) -> int:
            a, b = (row[j], row[i]) if descending else (row[i], row[j])
            if not isinstance(a, arb):
                return int(a > b) - int(a < b)
            return -1 if less(a, b) else 1 if less(b, a) else 0

        return np.array(sorted(range(len(row)), key=functools.cmp_to_key(key)), dtype=np.int64)

    moved = np.moveaxis(data, axis, -1)
    out = np.empty(moved.shape, dtype=np.int64)
    for place in np.ndindex(moved.shape[:-1]):
        out[place] = sort_row(moved[place])
    return np.moveaxis(out, -1, axis)


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    dim %= x.ndim
    where_to = list(np.indices(index.shape))
    where_to[dim] = index.data
    place = tuple(where_to)

    def back(c: np.ndarray) -> np.ndarray:
        out = zeros(x.shape)
        np.add.at(out, place, c)
        return out

    data = x.data[place]
    return Tensor(objects(data) if is_float(x.data) else data, [(x, back)])


def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    dim %= x.ndim
    where_to = list(np.indices(index.shape))
    where_to[dim] = index.data
    place = tuple(where_to)
    data = x.data.copy()
    part = source.data[tuple(slice(n) for n in index.shape)]
    np.add.at(data, place, part)

    def back(c: np.ndarray) -> np.ndarray:
        out = zeros(source.shape)
        out[tuple(slice(n) for n in index.shape)] = c[place]
        return out

    return Tensor(data, [(x, lambda c: c), (source, back)])


def reshape(x: Tensor, shape: Any) -> Tensor:
    data = x.data.reshape(tuple(shape))
    return Tensor(data, [(x, lambda c: c.reshape(x.shape))], x.dtype)


def permute(x: Tensor, order: Any) -> Tensor:
    order = tuple(o % x.ndim for o in order)
    back = tuple(np.argsort(order))
    return Tensor(np.transpose(x.data, order), [(x, lambda c: np.transpose(c, back))], x.dtype)


def expand(x: Tensor, shape: Any) -> Tensor:
    lead = len(shape) - x.ndim
    wanted = tuple(x.shape[i - lead] if n == -1 else n for i, n in enumerate(shape))
    return Tensor(np.broadcast_to(x.data, wanted), [(x, lambda c: unbroadcast(c, x.shape))], x.dtype)


def cat(parts: Any, dim: int = 0) -> Tensor:
    parts = list(parts)
    if len({is_float(p.data) for p in parts}) > 1:
        parts = [_float(p) for p in parts]
    dim %= parts[0].ndim
    data = np.concatenate([p.data for p in parts], axis=dim)
    edges = np.cumsum([0] + [p.shape[dim] for p in parts])

    def back(i: int) -> Any:
        return lambda c: np.take(c, range(edges[i], edges[i + 1]), axis=dim)

    return Tensor(data, [(p, back(i)) for i, p in enumerate(parts)])


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Float formats are all the real numbers. To an integer, numbers are truncated and wrap."""
    if dtype.is_floating_point:
        return Tensor(floats(x.data), [(x, lambda c: c)], dtype)
    native = NATIVE[dtype]
    if not is_float(x.data):
        return Tensor(x.data.astype(native), dtype=dtype)
    if dtype == torch.bool:
        return Tensor(elementwise(lambda v: not tied(v, arb(0)), 1)(x.data).astype(bool), dtype=dtype)
    whole = elementwise(lambda v: int(float(_trunc(v).mid())), 1)(x.data)
    return Tensor(np.asarray(whole.astype(np.int64)).astype(native), dtype=dtype)
