"""The names that a program finds around itself when it is evaluated exactly: torch, F, nn, np, math."""

from __future__ import annotations

import ast
import contextlib
import functools
import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from flint import arb

from . import composed, methods, ops, optim
from .reading import HALF_ULP, current, exact, real, scalar
from .tensor import NATIVE, Tensor, as_ball, cotangents, grad_mode, is_float, objects, zeros

methods.attach()


def lifted(tensor: torch.Tensor) -> Tensor:
    """A tensor's numbers, as they are."""
    if not tensor.is_floating_point():
        return Tensor(tensor.numpy().copy(), dtype=tensor.dtype)
    return Tensor(objects(as_ball(tensor.detach().double().numpy().astype(object))), dtype=tensor.dtype)


def lowered(tensor: Tensor) -> torch.Tensor:
    """The nearest fp32 numbers: what a draw's decision is taken on."""
    if not is_float(tensor.data):
        return torch.from_numpy(np.ascontiguousarray(tensor.data))
    flat = [float(v.mid()) for v in tensor.data.reshape(-1)]
    return torch.tensor(flat, dtype=torch.float32).reshape(tensor.shape)


# Draws: the base randomness is PyTorch's own, bit by bit; what is made of it is mathematics.


def _randn(*shape: Any, generator: Any = None, dtype: Any = None) -> Tensor:
    return lifted(torch.randn(*shape, generator=generator))


def _rand(*shape: Any, generator: Any = None, dtype: Any = None) -> Tensor:
    return lifted(torch.rand(*shape, generator=generator))


def _normal(mean: Any, std: Any, size: Any = None, generator: Any = None) -> Tensor:
    shape = size if size is not None else (mean if isinstance(mean, Tensor) else std).shape
    return ops.add(ops.mul(_randn(shape, generator=generator), std), mean)


def _normal_in_place(self: Tensor, mean: Any = 0.0, std: Any = 1.0, generator: Any = None) -> Tensor:
    return self.write(_normal(mean, std, self.shape, generator))


def _uniform_in_place(self: Tensor, low: Any = 0.0, high: Any = 1.0, generator: Any = None) -> Tensor:
    drawn = _rand(self.shape, generator=generator)
    return self.write(ops.add(ops.mul(drawn, exact(high) - exact(low)), low))


def _bernoulli(p: Tensor, generator: Any = None) -> Tensor:
    return lifted(torch.bernoulli(lowered(p), generator=generator))


def _bernoulli_in_place(self: Tensor, p: Any = 0.5, generator: Any = None) -> Tensor:
    return self.write(lifted(torch.empty(self.shape).bernoulli_(float(p), generator=generator)))


def _multinomial(p: Tensor, n: int, replacement: bool = False, generator: Any = None) -> Tensor:
    return lifted(torch.multinomial(lowered(p), n, replacement, generator=generator))


def _dropout(x: Tensor, p: Any = 0.5, training: bool = True) -> Tensor:
    kept = lifted(torch.empty(x.shape).bernoulli_(1 - float(p)))
    return ops.mul(x, ops.mul(kept, Tensor(objects(1 / (1 - exact(p))))))


def _full(shape: Any, value: Any, dtype: Any = None) -> Tensor:
    if dtype is not None and not dtype.is_floating_point:
        return Tensor(np.full(tuple(shape), value, dtype=NATIVE[dtype]))
    return composed.full(shape if isinstance(shape, (tuple, list)) else (shape,), value)


def _filled(value: int) -> Callable[..., Tensor]:
    return lambda *shape, dtype=None: _full(methods._sizes(shape), value, dtype)


def _like(value: int) -> Callable[..., Tensor]:
    return lambda x, dtype=None: _full(x.shape, value, dtype or x.dtype)


def _arange(*limits: Any, dtype: Any = None) -> Tensor:
    if all(isinstance(v, int) for v in limits) and (dtype is None or not dtype.is_floating_point):
        return Tensor(np.arange(*limits, dtype=np.int64))
    start, stop, step = (*((0,) if len(limits) == 1 else ()), *limits, *((1,) if len(limits) < 3 else ()))
    count = math.ceil((float(stop) - float(start)) / float(step))
    return Tensor(objects([exact(start) + i * exact(step) for i in range(count)]))


def _linspace(start: Any, end: Any, steps: int) -> Tensor:
    a, b = scalar(start), scalar(end)
    return Tensor(objects([a + (b - a) * i / (steps - 1) for i in range(steps)]))


def _tensor(values: Any, dtype: Any = None) -> Tensor:
    if isinstance(values, Tensor):
        return values if dtype is None else ops.cast(values, dtype)
    array = np.array(values, dtype=object)
    whole = all(isinstance(v, (int, np.integer)) for v in array.reshape(-1))
    if whole and (dtype is None or not dtype.is_floating_point):
        boolean = array.size and all(isinstance(v, (bool, np.bool_)) for v in array.reshape(-1))
        return Tensor(array.astype(NATIVE[dtype] if dtype else np.bool_ if boolean else np.int64))
    out = zeros(array.shape)
    for place in np.ndindex(array.shape):
        out[place] = scalar(array[place])
    return Tensor(out)


def _grad(outputs: Any, inputs: Any, grad_outputs: Any = None, **_: Any) -> tuple[Tensor, ...]:
    roots = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    seeds = list(grad_outputs) if isinstance(grad_outputs, (list, tuple)) else [grad_outputs] * len(roots)
    found = cotangents(roots, seeds)
    wanted = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    return tuple(Tensor(found[x]) if x in found else Tensor(zeros(x.shape)) for x in wanted)


class Module:
    """As much of nn.Module as programs use: parameters by attribute, and forward when called."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.forward(*given, **named)


def _no_context(*_: Any, **__: Any) -> Any:
    return contextlib.nullcontext()


def _from_numpy(x: Tensor) -> Tensor:
    """What numpy computed in fp32 is data to a trace, so that its rounding is free."""
    seed = current().given_moved
    if seed is None or not is_float(x.data):
        return x
    draw = random.Random(seed)
    moved = np.empty(x.data.shape, object)
    for place in np.ndindex(moved.shape):
        moved[place] = x.data[place] * (1 + draw.choice((-1, 1)) * HALF_ULP)
    return Tensor(moved)


def _world() -> dict[str, Any]:
    table = methods.table()
    dtypes = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "long")
    fake = SimpleNamespace(**{name: f for name, f in table.items()}, **{n: getattr(torch, n) for n in dtypes})
    fake.__dict__.update(
        Tensor=Tensor,
        cat=ops.cat,
        concat=ops.cat,
        permute=lambda x, order: ops.permute(x, order),
        reshape=lambda x, shape: ops.reshape(x, shape),
        zeros=_filled(0),
        ones=_filled(1),
        full=_full,
        empty=_filled(0),
        zeros_like=_like(0),
        ones_like=_like(1),
        empty_like=_like(0),
        full_like=lambda x, value: _full(x.shape, value),
        arange=_arange,
        linspace=_linspace,
        eye=lambda n: Tensor(as_ball(np.eye(n, dtype=np.int64).astype(object))),
        tensor=_tensor,
        as_tensor=_tensor,
        from_numpy=_from_numpy,
        outer=lambda a, b: ops.mul(ops.reshape(a, (-1, 1)), ops.reshape(b, (1, -1))),
        addmm=lambda c, a, b, beta=1, alpha=1: ops.add(ops.mul(c, beta), ops.mul(ops.matmul(a, b), alpha)),
        baddbmm=lambda c, a, b, beta=1, alpha=1: ops.add(ops.mul(c, beta), ops.mul(ops.matmul(a, b), alpha)),
        rand=_rand,
        randn=_randn,
        normal=_normal,
        bernoulli=_bernoulli,
        multinomial=_multinomial,
        manual_seed=torch.manual_seed,
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
        Generator=torch.Generator,
        no_grad=lambda: grad_mode(False),
        enable_grad=lambda: grad_mode(True),
        autocast=_no_context,
        autograd=SimpleNamespace(grad=_grad),
        optim=optim,
        pi=arb.pi(),
        inf=arb.pos_inf(),
        finfo=torch.finfo,
        logical_and=lambda a, b: ops.logical(a, b, np.logical_and),
        special=SimpleNamespace(expit=ops.sigmoid),
    )
    names = [n for n in vars(composed) if not n.startswith("_")]
    functional = SimpleNamespace(
        **{n: getattr(composed, n) for n in names}, **{n: table[n] for n in ("tanh", "sigmoid")}
    )
    functional.dropout = _dropout
    Tensor.normal_, Tensor.uniform_ = _normal_in_place, _uniform_in_place
    Tensor.bernoulli_ = _bernoulli_in_place
    plain = SimpleNamespace(
        mean=lambda x: composed.mean(x),
        std=lambda x, ddof=0: composed.std(x, correction=ddof),
        sqrt=lambda x: ops.sqrt(x) if isinstance(x, Tensor) else exact(x).sqrt(),
        exp=lambda x: ops.exp(x) if isinstance(x, Tensor) else exact(x).exp(),
        sin=ops.sin,
        cos=ops.cos,
        sum=lambda x: total_of(x),
        asarray=lambda x, dtype=None: x,
        float32=torch.float32,
        float64=torch.float64,
        arange=lambda *a, dtype=None: Tensor(as_ball(np.arange(*a).astype(object))),
        outer=fake.outer,
        abs=ops.absolute,
        pi=arb.pi(),
    )
    return {
        "torch": fake,
        "F": functional,
        "nn": SimpleNamespace(Module=Module, Parameter=lambda x: x.detach().requires_grad_()),
        "np": plain,
        "math": SimpleNamespace(
            **{n: (lambda x, n=n: getattr(exact(x), n)()) for n in ("sqrt", "exp", "log", "cos", "sin", "tanh")},
            log2=lambda x: exact(x).log() / arb(2).log(),
            pi=arb.pi(),
            e=arb(1).exp(),
            inf=math.inf,
            ceil=math.ceil,
            floor=math.floor,
            prod=math.prod,
        ),
        "checkpoint": lambda function, *given, **_: function(*given),
        "float": exact,
        "_real": real,
        "_div": lambda a, b: exact(a) / exact(b) if not isinstance(a, Tensor) and not isinstance(b, Tensor) else a / b,
        "_pow": _pow,
    }


def total_of(x: Any) -> Any:
    return ops.total(x) if isinstance(x, Tensor) else sum(x)


def _pow(a: Any, b: Any) -> Any:
    """An integer power stays one, so that kernels' own squares and cubes are taken."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        if isinstance(b, arb) and b.is_integer():
            b = int(float(b))
        return a**b
    return exact(a) ** exact(b) if not (isinstance(a, int) and isinstance(b, int) and b >= 0) else a**b


class _Literals(ast.NodeTransformer):
    """Numbers with a point become the real numbers that their digits say; quotients of integers stay exact."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, float):
            return node
        text = self._lines[node.lineno - 1][node.col_offset : node.end_col_offset]  # Programs are plain ASCII.
        call = ast.Call(ast.Name("_real", ast.Load()), [ast.Constant(text)], [])
        return ast.copy_location(call, node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = {ast.Div: "_div", ast.Pow: "_pow"}.get(type(node.op))
        if name is None:
            return node
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], []), node)


WORLD = _world()


@functools.lru_cache(64)
def _compiled(source: str) -> Any:
    tree = ast.fix_missing_locations(_Literals(source).visit(ast.parse(source)))
    return compile(tree, "<exact>", "exec")


def scope_of(source: str) -> dict[str, Any]:
    """The names that a program's text defines, in exact arithmetic."""
    scope = dict(WORLD)
    exec(_compiled(source), scope)
    return scope
