"""Tensors of exact numbers, and their derivatives by reverse accumulation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from flint import arb

from .reading import less, scalar, tied

Vjp = Callable[[np.ndarray], np.ndarray]

_grad_mode = [True]


@contextlib.contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    _grad_mode.append(enabled)
    try:
        yield
    finally:
        _grad_mode.pop()


def elementwise(function: Callable[..., Any], inputs: int) -> Callable[..., np.ndarray]:
    """A function of numbers as one of arrays of objects, of any shape."""
    wrapped = np.frompyfunc(function, inputs, 1)

    def call(*arrays: Any) -> np.ndarray:
        out = np.empty(np.broadcast_shapes(*(np.shape(a) for a in arrays)), dtype=object)
        out[...] = wrapped(*arrays)
        return out

    return call


as_ball = elementwise(lambda x: x if isinstance(x, arb) else arb(x if isinstance(x, float) else int(x)), 1)
less_than = elementwise(less, 2)
equal_to = elementwise(tied, 2)


def as_fp32(array: np.ndarray) -> np.ndarray:
    """Each number rounded to fp32; integers and what fp32 holds stay as they are."""
    if not is_float(array):
        return array
    return elementwise(lambda v: arb(float(np.float32(float(v.mid())))), 1)(array)


def objects(values: Any) -> np.ndarray:
    """An array of balls; zero-dimensional ones included, which numpy likes to unpack."""
    out = np.empty(np.shape(values), dtype=object)
    out[...] = values
    return out


def is_float(array: np.ndarray) -> bool:
    return array.dtype == object


def floats(array: np.ndarray) -> np.ndarray:
    return array if is_float(array) else as_ball(array)


def unbroadcast(cotangent: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The sum over what broadcasting repeated."""
    cotangent = objects(cotangent)
    extra = cotangent.ndim - len(shape)
    out = cotangent.sum(axis=tuple(range(extra))) if extra else cotangent
    repeated = tuple(i for i, n in enumerate(shape) if n == 1 and np.shape(out)[i] != 1)
    return objects(np.sum(objects(out), axis=repeated, keepdims=True) if repeated else out)


class Tensor:
    """`data` holds balls (float formats) or native integers and booleans, which wrap as PyTorch's do. `parents` are the
    tensors it was computed from, each with the map from its cotangent to theirs."""

    __array_priority__ = 1000  # numpy's operators leave expressions to ours.

    def __init__(self, data: np.ndarray, parents: Any = (), dtype: torch.dtype | None = None) -> None:
        self.data = data
        needed = [(p, v) for p, v in parents if p.requires_grad] if _grad_mode[-1] else []
        self.parents: list[tuple[Tensor, Vjp]] = needed
        self.requires_grad = bool(needed)
        self.grad: Tensor | None = None
        self.dtype = dtype or (torch.float32 if is_float(data) else _DTYPES[data.dtype.name])

    # Autograd.

    def requires_grad_(self, wanted: bool = True) -> Tensor:
        self.requires_grad = wanted
        return self

    @property
    def is_leaf(self) -> bool:
        return not self.parents

    def backward(self, gradient: Tensor | None = None) -> None:
        for leaf, cotangent in cotangents([self], [gradient]).items():
            if leaf.is_leaf and leaf.requires_grad:
                if leaf.grad is None:
                    leaf.grad = Tensor(cotangent)
                else:
                    leaf.grad.data[...] = leaf.grad.data + cotangent

    def detach(self) -> Tensor:
        return Tensor(self.data, dtype=self.dtype)

    def write(self, value: Tensor) -> Tensor:
        """In place: into the memory that views share, or, where autograd records, as a new version of this tensor."""
        if _grad_mode[-1] and (value.requires_grad or self.requires_grad):
            # What was computed from this tensor before holds its old version, which `value` reads too.
            before = Tensor(self.data, dtype=self.dtype)
            before.parents, before.requires_grad = self.parents, self.requires_grad
            self.parents = [(before if p is self else p, v) for p, v in value.parents]
            self.data, self.requires_grad = value.data, value.requires_grad
        else:
            self.data[...] = value.data
        return self

    # Shape.

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self.data.shape)

    @property
    def ndim(self) -> int:
        return self.data.ndim

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return self.data.size

    def dim(self) -> int:
        return self.data.ndim

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.item())

    def __hash__(self) -> int:
        return id(self)

    def item(self) -> Any:
        value = self.data.reshape(-1)[0]
        return value if isinstance(value, arb) else value.item()

    def __getitem__(self, index: Any) -> Tensor:
        where = _index(index)

        def back(c: np.ndarray) -> np.ndarray:
            out = zeros(self.shape)
            np.add.at(out, where, c)
            return out

        picked = self.data[where]
        return Tensor(objects(picked) if is_float(self.data) else np.asarray(picked), [(self, back)], self.dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        where, given = _index(index), lift(value, self)
        new = self.data.copy()
        new[where] = given.data if given.data.ndim else given.data[()]
        kept = np.ones(self.shape, dtype=bool)
        kept[where] = False

        def back_self(c: np.ndarray) -> np.ndarray:
            return np.where(kept, c, arb(0))

        def back_value(c: np.ndarray) -> np.ndarray:
            return unbroadcast(objects(c[where]), given.shape)

        self.write(Tensor(new, [(self, back_self), (given, back_value)], self.dtype))

    def __repr__(self) -> str:
        return f"exact.Tensor({self.data!r})"


_DTYPES = {
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
NATIVE = {torch_dtype: np.dtype(name) for name, torch_dtype in _DTYPES.items()}


def zeros(shape: tuple[int, ...]) -> np.ndarray:
    out = np.empty(shape, dtype=object)
    out[...] = arb(0)
    return out


def _index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_index(i) for i in index)
    return index.data if isinstance(index, Tensor) else index


def lift(value: Any, like: Tensor | None = None) -> Tensor:
    """What may stand beside a tensor in an operation; a number enters as the current reading says."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int)) and like is not None and not is_float(like.data):
        return Tensor(np.asarray(value, dtype=like.data.dtype if not isinstance(value, bool) else bool))
    return Tensor(objects(scalar(value)))


def cotangents(roots: list[Tensor], seeds: list[Tensor | None]) -> dict[Tensor, np.ndarray]:
    """The cotangent of every tensor that the roots were computed from."""
    order: list[Tensor] = []
    seen: set[int] = set()
    for root in roots:
        stack = [(root, iter(root.parents))]
        while stack:
            node, rest = stack[-1]
            if id(node) in seen:
                stack.pop()
                continue
            for parent, _ in rest:
                if id(parent) not in seen:
                    stack.append((parent, iter(parent.parents)))
                    break
            else:
                seen.add(id(node))
                order.append(node)
                stack.pop()
    out: dict[Tensor, np.ndarray] = {}
    for root, seed in zip(roots, seeds, strict=True):
        start = floats(seed.data) if seed is not None else zeros(root.shape) + arb(1)
        out[root] = out[root] + start if root in out else objects(start)
    for node in reversed(order):
        if node not in out:
            continue
        for parent, vjp in node.parents:
            share = objects(vjp(out[node]))
            out[parent] = objects(out[parent] + share) if parent in out else share
    return out
