"""Programs from specs: their text, their parameters and data, and what they return in PyTorch and exactly."""

from __future__ import annotations

import functools
import linecache
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from .exact import world
from .exact.reading import HALF_ULP, Reading, reading
from .exact.tensor import Tensor, as_fp32, equal_to, grad_mode, is_float
from .forms import INPUT, KINDS, LAYER, LOSS, OPTIMIZER, PREPARE, STEP, Context
from .spec import VOCABULARY, Applied, Spec

Taps = dict[str, torch.Tensor]

IGNORE = -100


@dataclass(frozen=True)
class Text:
    """A program's source, and which of its lines each block wrote."""

    source: str
    lines_of: dict[int, range]


@dataclass(frozen=True)
class Given:
    """What a program is given: parameters, data with a leading batch dimension, tables and state without one."""

    params: Taps
    data: Taps
    tables: Taps


def context(spec: Spec, index: int, applied: Applied | None = None, lines: tuple[str, ...] = ()) -> Context:
    delta = applied.delta if applied else 0.0
    return Context(index, spec.batch, spec.time, spec.width, spec.blocks[index].options, delta, lines)


def block_lines(spec: Spec, index: int, edits: tuple[Applied, ...]) -> list[str]:
    lines = KINDS[spec.blocks[index].kind].form(context(spec, index))
    for applied in edits:
        if applied.block == index:
            lines = applied.registered.form(context(spec, index, applied, tuple(lines)))
    return lines


def text(spec: Spec, edits: tuple[Applied, ...] = ()) -> Text:
    slots = [KINDS[b.kind].slot for b in spec.blocks]
    blocks = [block_lines(spec, index, edits) for index in range(len(slots))]
    early = [line.removeprefix(PREPARE) for lines in blocks for line in lines if line.startswith(PREPARE)]
    out: list[str] = []
    lines_of: dict[int, range] = {}
    if early:
        out += ["def prepare(p, d, t):", *(f"    {line}" for line in early), "", ""]

    def emit(slot: str, indent: str) -> None:
        for index, of in enumerate(slots):
            if of == slot:
                start = len(out) + 1
                out.extend(f"{indent}{line}" for line in blocks[index] if not line.startswith(PREPARE))
                lines_of[index] = range(start, len(out) + 1)

    if spec.module:
        out += ["class Net(nn.Module):", "    def __init__(self, p):", "        super().__init__()"]
        out += ["        for name, value in p.items():", "            setattr(self, name, value)", ""]
        out += ["    def forward(self, p, d, t):"]
    else:
        out += ["def forward(p, d, t):"]
    indent = "        " if spec.module else "    "
    emit(INPUT, indent)
    emit(LAYER, indent)
    out += [f"{indent}return h", "", "", "def program(p, d, t):"]
    if spec.module:
        out += ["    net = Net(p)"]
    out += ["    taps = {}", "", "    def loss_of(p, d, t):"]
    call = "net(p, d, t)" if spec.module else "forward(p, d, t)"
    if spec.autocast:
        out += ['        with torch.autocast("cpu", dtype=torch.bfloat16):', f"            h = {call}"]
        out += ["        h = h.float()"]
    else:
        out += [f"        h = {call}"]
    emit(LOSS, "        ")
    out += ["        return loss", ""]
    emit(STEP, "    ")
    out += ["    for name, value in p.items():", "        if value.grad is not None:"]
    out += ['            taps["grad:" + name] = value.grad.clone()', "    with torch.no_grad():"]
    emit(OPTIMIZER, "        ")
    out += ["    for name, value in p.items():", '        taps["new:" + name] = value.detach()']
    if "watched" in (b.kind for b in spec.blocks):
        out += ['    taps.update({name: value for name, value in t.items() if name.startswith("tap:")})']
    out += ["    return taps"]
    return Text("\n".join(out) + "\n", lines_of)


def given(spec: Spec) -> Given:
    draw = torch.Generator().manual_seed(spec.seed)
    params: Taps = {}
    data: Taps = {}
    tables: Taps = {}
    for index, block in enumerate(spec.blocks):
        kind = KINDS[block.kind]
        for name, shape in kind.params.items():
            params[f"{name}{index}"] = _filled(spec, shape, "weight", draw)
        for name, shape in kind.data.items():
            letters, _, fill = shape.partition(":")
            data[f"{name}{index}"] = _filled(spec, letters, fill, draw)
        for name, shape in kind.tables.items():
            letters, _, fill = shape.partition(":")
            if letters != "P":
                tables[f"{name}{index}"] = _filled(spec, letters, fill, draw)
    for block in spec.blocks:
        for name, shape in KINDS[block.kind].tables.items():
            if shape.startswith("P:"):
                for parameter, value in params.items():
                    state = torch.randn(value.shape, generator=draw) * 0.1
                    tables[f"{name}:{parameter}"] = state if shape == "P:state" else state.square() + 1e-4
    return Given(params, data, tables)


def _filled(spec: Spec, letters: str, fill: str, draw: torch.Generator) -> torch.Tensor:
    letters, _, own = letters.partition(":")
    fill = own or fill
    sizes = {"B": spec.batch, "T": spec.time, "D": spec.width, "E": 2 * spec.width, "V": VOCABULARY}
    shape = [sizes.get(part) or int(part) for part in letters.split(",")]

    def normal() -> torch.Tensor:
        return torch.randn(shape, generator=draw)

    def integers(high: int, low: int = 0) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=draw)

    if fill == "weight":
        return normal() / math.sqrt(shape[-1] if len(shape) > 1 else 4)
    if fill == "near_one":
        return 1 + 0.2 * normal()
    if fill == "positive":
        return 0.5 + normal().abs()
    if fill == "tokens":
        return integers(VOCABULARY)
    if fill == "classes":
        return integers(spec.width)
    if fill == "ignoring":  # Every row keeps its first, and the second row loses all others.
        values = integers(spec.width)
        values[0, -1:] = IGNORE
        values[1, 1:] = IGNORE
        return values
    if fill == "bytes":
        return integers(256).to(torch.uint8)
    if fill == "coins":
        values = integers(2).bool()
        values[..., 0], values[..., 1] = True, False
        return values
    if fill == "coins01":
        return integers(2).float()
    if fill == "logits":
        return 2 * normal()
    if fill == "logp":
        return -normal().abs() - 0.5
    return normal()


_DOUBLE = [
    (".float()", ".double()"),
    ("torch.randn(h.shape", "torch.randn(h.shape, dtype=torch.float32"),
    ("torch.rand(h.shape", "torch.rand(h.shape, dtype=torch.float32"),
    ("torch.zeros(h.shape)", "torch.zeros(h.shape, dtype=torch.float32)"),
    ("torch.empty(h.shape)", "torch.empty(h.shape, dtype=torch.float32)"),
]


def in_double(source: str) -> str:
    """The program in fp64, with draws in fp32 as they were."""
    for old, new in _DOUBLE:
        source = source.replace(old, new)
    return source


@functools.lru_cache(64)
def _compiled(source: str, name: str) -> Any:
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    return compile(source, name, "exec")


def torch_program(spec: Spec, edits: tuple[Applied, ...], dtype: torch.dtype, name: str) -> Callable[[], Taps]:
    """The program, with fresh parameters; `name` is the file that its lines are said to be of."""
    source = text(spec, edits).source
    if dtype == torch.float64:
        source, name = in_double(source), f"{name}-fp64"
    items = given(spec)

    def convert(values: Taps) -> Taps:
        return {n: v.to(dtype) if v.is_floating_point() else v.clone() for n, v in values.items()}

    params = {n: torch.nn.Parameter(v.clone()) for n, v in convert(items.params).items()}
    data, tables = convert(items.data), {n: v.clone() for n, v in convert(items.tables).items()}
    scope = {"torch": torch, "F": F, "nn": torch.nn, "np": np, "math": math, "checkpoint": checkpoint}
    exec(_compiled(source, name), scope)

    def call(entry: str) -> Any:
        usual = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            return scope[entry](params, data, tables)
        finally:
            torch.set_default_dtype(usual)

    if "prepare" in scope:
        with torch.no_grad():
            call("prepare")
    return lambda: call("program")


def _round(value: Tensor, before: np.ndarray | None, draw: random.Random | None) -> None:
    """To fp32, in place, and what preparation changed by half a unit in the last place beside, where `draw` says so."""
    if not is_float(value.data):
        return
    fresh = np.ones(value.shape, bool) if before is None else ~equal_to(before, value.data).astype(bool)
    value.data = as_fp32(value.data)
    if draw is not None:
        for place in np.ndindex(value.shape):
            if fresh[place]:
                value.data[place] = value.data[place] * (1 + draw.choice((-1, 1)) * HALF_ULP)


def exact_taps(spec: Spec, edits: tuple[Applied, ...], how: Reading) -> dict[str, Tensor]:
    items = given(spec)
    source = text(spec, edits).source
    torch.manual_seed(spec.seed)
    with reading(how):
        params = {n: world.lifted(v).requires_grad_() for n, v in items.params.items()}
        data, tables = ({n: world.lifted(v) for n, v in part.items()} for part in (items.data, items.tables))
        scope = world.scope_of(source)
        if "prepare" in scope:
            before = {id(v): v.data.copy() for v in (*params.values(), *data.values(), *tables.values())}
            with grad_mode(False):
                scope["prepare"](params, data, tables)
            if how.rounded:
                draw = random.Random(how.given_moved)
                for value in (*params.values(), *data.values(), *tables.values()):
                    _round(value, before.get(id(value)), None if how.given_moved is None else draw)
        return scope["program"](params, data, tables)
