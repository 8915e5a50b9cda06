"""Compiled regions in a captured step: one opaque operation each, or, where the region's graph was recorded when it was
compiled (recorded.py), the operations of that graph.

A recorded graph is run on fake tensors, which have shapes, strides and storages but no content, so that each of its
operations can be written down as if it had been seen. Only what goes into the region and what comes out of it is real.
"""

from __future__ import annotations

import hashlib
import logging
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .capture import UNSET, CaptureFailed, Recorder
from .compiler import Follower
from .draws import SCALED, dropout_scale
from .recorded import RecordedGraph
from .regions import Region
from .schema import DTYPES, EMPTY, OPERATION, RANDOM, SKIP, VIEW, OperatorInfo
from .sites import BACKWARD
from .storages import ABSENT, Storage, Window, modelled, stand_ins
from .storages import RANDOM as RANDOM_LEAF

log = logging.getLogger("plumbline")

Site = tuple[int, str, str]
Mark = tuple[int, list[tuple[Storage, int, int, int, bool]]]
Real = dict[int, torch.Tensor]  # By position among an operation's results.

_DTYPES = {code: dtype for dtype, code in DTYPES.items()}


class NotReplayable(Exception):
    """A recorded graph holds something that cannot be written down without having been seen."""


class CompiledRegions(Follower):
    """What a recorder does with compiled code."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.unknown_backend = ""
        self.partial = False  # Only some modules of the step are audited.

    def unknown(self, backend: str) -> None:
        self.unknown_backend = backend
        self._recorder.fail(
            "compiled_region",
            f"torch.compile with backend {backend!r} computes out of sight; see plumbline.compile_backend",
        )

    def compiling(self, begins: bool) -> None:
        self._recorder.silence.depth += 1 if begins else -1

    def region(self, region: Any, call: Callable[[list[Any]], Any], inputs: list[Any]) -> Any:
        recorder = self._recorder
        if self.partial:  # Modules begin and end inside of a region, where nobody sees it.
            recorder.fail("compiled_part", "a compiled region runs in a step that is audited in part")
        if recorder.failure is not None or recorder.silence.depth:
            return call(inputs)
        run = None
        recorder.silence.depth += 1
        try:
            try:
                with recorder.lock:
                    run = _Run(recorder, region, inputs)
            except Exception as error:
                recorder.guard(error)
            outputs = call(inputs)
            if run is not None and recorder.failure is None:
                try:
                    with recorder.lock:
                        run.finish(outputs)
                except Exception as error:
                    recorder.guard(error)
        finally:
            recorder.silence.depth -= 1
        return outputs


class _Run:
    """One call of a region."""

    def __init__(self, recorder: Recorder, region: Any, inputs: list[Any]) -> None:
        self._recorder = recorder
        self._site = recorder.sites.follow_region()
        phase, module, _ = self._site
        way = "backward" if phase == BACKWARD else "forward"
        self._name = f"torch.compile::{module or 'program'}.{way}"
        graph = region if isinstance(region, RecordedGraph) else getattr(region, "plumbline_graph", None)
        self._identity = _identity(region)
        mutated = graph.mutated if graph is not None else set(getattr(region, "mutated_input_idxs", ()))
        self._mutated = {index: inputs[index] for index in mutated}
        self._windows: list[Window] = []
        self._attributes: list[str] = []
        self._shadow = None
        given: list[Any] = []
        for index, value in enumerate(inputs):
            if isinstance(value, torch.Tensor):
                if index in self._mutated:
                    recorder.announce_write(value)
                given.append((self._read(value), value.device))
            else:
                given.append(value)
                self._attributes.append(str(value) if isinstance(value, (int, float)) else "")
        if graph is not None:
            missing = _not_replayable(graph, recorder)
            if missing:
                _log_once(self._name, missing)
            else:
                self._shadow = _Shadow(recorder, graph, self._site, self._name, given, self._mutated)

    def _read(self, tensor: torch.Tensor) -> Window:
        storages = self._recorder.storages
        if modelled(tensor):
            window = storages.read(tensor)
            self._windows.append(window)
            return window
        self._windows.extend(storages.read(part) for part in stand_ins(tensor))
        return ABSENT

    def finish(self, outputs: Any) -> None:
        results = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        if self._shadow is not None:
            mark = self._shadow.mark(results)
            try:
                self._shadow.run(results)
                return
            except NotReplayable as error:
                _log_once(self._name, str(error))
            except CaptureFailed:
                raise
            except Exception as error:
                _log_once(self._name, f"{type(error).__name__}: {error}")
            finally:
                self._shadow.close()
            self._shadow.roll_back(mark)
        self._opaque([*results, *self._mutated.values()])

    def _opaque(self, written: list[Any]) -> None:
        recorder = self._recorder
        results = []
        for tensor in written:
            parts = [] if not isinstance(tensor, torch.Tensor) else [tensor] if modelled(tensor) else stand_ins(tensor)
            for part in parts:
                payload = recorder.storages.payload(recorder.arena.copy_tensor(part)) if part.numel() else 0
                results.append((*recorder.storages.write(part), "", payload))
        phase, module, source = self._site
        values = [self._windows, f"{self._identity}({','.join(self._attributes)})"]
        recorder.records.append(("op", Region(self._name), values, results, phase, source, module, 0))


class _Parts(TorchDispatchMode):
    """Hands on the operations that a decomposition is made of."""

    def __init__(self, operation: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self._operation = operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._operation(func, args, kwargs or {})


class _Shadow:
    """The operations of a recorded graph, run on fake tensors."""

    def __init__(
        self,
        recorder: Recorder,
        graph: RecordedGraph,
        site: Site,
        name: str,
        inputs: list[Any],
        mutated: dict[int, torch.Tensor],
    ) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        self._recorder = recorder
        self._graph = graph
        self._site = site
        self._name = name
        self._fake = FakeTensorMode()
        self._bases: dict[int, torch.Tensor] = {}  # By value: what stands for its storage.
        self._aliases: list[int] = []  # Keys of these in the table of storages.
        self._content: dict[int, torch.Tensor] = {}  # By fake tensor: the real one that holds its content now.
        self._inputs = inputs
        self._mutated = mutated
        self._drawn: set[int] = set()  # Fake tensors of random content.
        self._kept: list[Any] = []

    def mark(self, outputs: list[Any]) -> Mark:
        """The present state, for roll_back."""
        written = [t for t in (*self._mutated.values(), *outputs) if isinstance(t, torch.Tensor) and modelled(t)]
        entries = [self._recorder.storages.adopt(tensor) for tensor in written]
        return len(self._recorder.records), [(e, e.value, e.dtype, e.count, e.leaf) for e in entries]

    def roll_back(self, mark: Mark) -> None:
        del self._recorder.records[mark[0] :]
        for entry, *state in mark[1]:
            entry.value, entry.dtype, entry.count, entry.leaf = state

    def close(self) -> None:
        for key in self._aliases:
            self._recorder.storages.drop_alias(key)

    def run(self, outputs: list[Any]) -> None:
        """Writes the operations down; `outputs` is what the region really gave."""
        flat = list(self._graph.output) if isinstance(self._graph.output, (list, tuple)) else [self._graph.output]
        if len(flat) != len(outputs):
            raise NotReplayable(f"{len(flat)} outputs were recorded, {len(outputs)} came")
        real: dict[torch.fx.Node, Real] = {}
        for node, tensor in zip(flat, outputs, strict=True):
            if isinstance(node, torch.fx.Node) and isinstance(tensor, torch.Tensor):
                maker, position = _maker(node)
                real.setdefault(maker, {})[position] = tensor
        with _disable_current_modes(), torch.no_grad():
            values = self._operations(real)
            self._kept.append(values)
            for node, tensor in zip(flat, outputs, strict=True):
                if isinstance(node, torch.fx.Node) and isinstance(tensor, torch.Tensor):
                    self._hand_over(values[node], tensor)

    def _operations(self, real: dict[torch.fx.Node, Real]) -> dict[torch.fx.Node, Any]:
        values: dict[torch.fx.Node, Any] = {}
        given = iter(enumerate(self._inputs))
        for node in self._graph.graph.nodes:
            args, kwargs = _given((node.args, node.kwargs), values)
            if node.op == "placeholder":
                index, value = next(given)
                values[node] = self._stand_in(*value) if isinstance(value, tuple) else value
                if index in self._mutated:
                    self._content[id(values[node])] = self._mutated[index]
            elif node.op == "get_attr":
                constant = self._graph.constants[node.target]
                values[node] = self._stand_in(self._recorder.storages.read(constant), constant.device)
            elif node.target is operator.getitem or not isinstance(node.target, torch._ops.OpOverload):
                values[node] = node.target(*args, **kwargs)  # Arithmetic of sizes.
            else:
                below, source = self._graph.sites[node]
                phase, module, outer = self._site
                site = (phase, ".".join(filter(None, (module, below))), source or outer)
                values[node] = self._operation(node.target, args, kwargs, site, real.get(node, {}))
        return values

    def _stand_in(self, window: Window, device: torch.device) -> torch.Tensor:
        """A fake tensor for a window on a known value."""
        value, code, sizes, strides, offset = window
        if not value:
            raise NotReplayable("a tensor of a type that is not modelled")
        storages = self._recorder.storages
        with self._fake:
            if value not in self._bases:
                reach = offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
                entry = storages.entry_of_value(value, reach, code)
                base = self._bases[value] = torch.empty(entry.count, dtype=_DTYPES[code], device=device)
                self._aliases.append(storages.alias(base, entry))
            return self._bases[value].as_strided(sizes, strides, offset)

    def _operation(self, func: Any, args: Any, kwargs: Any, site: Site, real: Real) -> Any:
        """Runs one operation on fake tensors and writes it down; `real` holds its results that the region gave."""
        recorder = self._recorder
        func, args, kwargs = _rewritten(func, args, kwargs)
        info = recorder.plan.info(func)
        if info.base == "native_dropout" and len(args) == 3 and args[2]:
            return self._dropout(args[0], args[1], site, real)
        drawn = [id(tensor) in self._drawn for tensor in _fakes((args, kwargs))]
        random = _draws(info)
        if info.kind == OPERATION and not _is_modelled(info) and not random and not any(drawn):
            return self._decomposed(info, args, kwargs, site, real)
        values: list[Any] = []
        if info.kind == OPERATION and not random and not any(drawn):
            recorder.storages.unmodelled = ""
            values = recorder._before(info, args, kwargs)
            if recorder.storages.unmodelled:
                raise NotReplayable(f"{info.name} of a type that is not modelled")
        with self._fake:
            out = _as_given(func(*args, **kwargs), real)
        if random or any(drawn):
            if info.writes or not (random or all(drawn)):
                raise NotReplayable(f"random numbers that the region keeps, read by {info.name}")
            for index, fake in enumerate(_fakes(out)):
                self._draw(fake, site, real.get(index))
        elif info.kind == EMPTY:
            recorder.storages.adopt(out).unwritten = True
        elif info.kind == OPERATION:
            self._emit(info, site, values, recorder._written(info, args, kwargs, out), real)
        elif info.kind not in (VIEW, SKIP):
            raise NotReplayable(info.name)
        return out

    def _decomposed(self, info: OperatorInfo, args: Any, kwargs: Any, site: Site, real: Real) -> Any:
        """An operation that is not modelled, by the framework's own decomposition."""
        formula = torch._decomp.decomposition_table.get(info.func)
        if formula is None:
            raise NotReplayable(info.name)
        with _Parts(lambda func, given, named: self._operation(func, given, named, site, {})):
            out = formula(*args, **kwargs)
        results = list(out) if isinstance(out, (list, tuple)) else [out]
        for position, tensor in real.items():  # Kernels keep some statistics wider than the formula states.
            if results[position].dtype != tensor.dtype:
                cast = torch.ops.aten._to_copy.default
                results[position] = self._operation(cast, (results[position],), {"dtype": tensor.dtype}, site, {})
        return tuple(results) if isinstance(out, (list, tuple)) else results[0]

    def _dropout(self, x: torch.Tensor, p: float, site: Site, real: Real) -> tuple[torch.Tensor, torch.Tensor]:
        """The mask is a draw; the rest is what its derivative does, too."""
        with self._fake:
            mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        self._draw(mask, site, real.get(1))
        return self._operation(SCALED, (x, mask, dropout_scale(p)), {}, site, {}), mask

    def _draw(self, fake: torch.Tensor, site: Site, content: torch.Tensor | None) -> None:
        """What is drawn, or depends on nothing but what was, is a leaf once the region hands it out."""
        if content is None or not modelled(fake):
            self._drawn.add(id(fake))
            self._kept.append(fake)
            return
        _check_like(fake, content)
        self._recorder.storages.write_leaf_of(fake, content, RANDOM_LEAF, self._recorder.sites.draw(site[1]))

    def _emit(self, info: OperatorInfo, site: Site, values: list[Any], written: Any, real: Real) -> None:
        recorder = self._recorder
        results = []
        decision = 0
        last = len(written) - 1 if info.last_result_decision else -1
        for position, (tensor, name) in enumerate(written):
            if tensor is None:
                results.append((ABSENT, 0, 0, name, 0))
                continue
            window, count, base = recorder.storages.write(tensor)
            content = self._content.get(id(tensor)) if name else real.get(position)
            payload = 0
            if content is not None and window[0] and tensor.numel():
                _check_like(tensor, content)
                if info.result_decision or position == last:
                    payload = recorder.storages.payload(recorder.arena.copy_tensor(content))
                if info.positive_side and not decision:
                    decision = recorder.storages.payload(recorder.arena.copy_positive_side(content))
            results.append((window, count, base, name, payload))
        if any(result[0][0] for result in results):
            phase, module, source = site
            recorder.records.append(("op", info, values, results, phase, source, module, decision, self._name))

    def _hand_over(self, fake: Any, tensor: torch.Tensor) -> None:
        """The region's output, in the memory that it really has: a copy of what the graph computed."""
        recorder = self._recorder
        if not isinstance(fake, torch.Tensor):
            raise NotReplayable("an output that was recorded as a number")
        inner, outer = recorder.storages.entry(fake), recorder.storages.entry(tensor)
        if inner is not None and inner is outer:
            return  # An input handed out again.
        if id(fake) in self._drawn:
            raise NotReplayable("a random number that is handed out")
        _check_like(fake, tensor)
        info = recorder.plan.info(torch.ops.aten.clone.default)
        values = [recorder.storages.read(fake), *[UNSET] * (len(info.arguments) - 1)]
        observed = recorder.outputs and tensor.numel() > 0
        payload = recorder.storages.payload(recorder.arena.copy_tensor(tensor)) if observed else 0
        results = [(*recorder.storages.write(tensor), "", payload)]
        phase, module, source = self._site
        recorder.records.append(("op", info, values, results, phase, source, module, 0, self._name))


def _given(arguments: Any, values: dict[torch.fx.Node, Any]) -> Any:
    """Arguments with values in place of nodes, in plain lists."""
    if isinstance(arguments, torch.fx.Node):
        return values[arguments]
    if isinstance(arguments, dict):
        return {name: _given(value, values) for name, value in arguments.items()}
    if isinstance(arguments, (list, tuple)):
        kind = tuple if isinstance(arguments, tuple) else list
        return kind(_given(value, values) for value in arguments)
    return arguments


def _maker(node: torch.fx.Node) -> tuple[torch.fx.Node, int]:
    """The operation that made a node's value, and the position in its results."""
    while node.target in _SAME and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        return node.args[0], node.args[1]
    return node, 0


def _fakes(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict):
        yield from _fakes(tuple(values.values()))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _fakes(value)


def _as_given(out: Any, real: Real) -> Any:
    """Fake results in the types that the real ones have: kernels keep some statistics wider than is stated."""
    given = list(out) if isinstance(out, (list, tuple)) else [out]
    for position, tensor in real.items():
        fake = given[position]
        if isinstance(fake, torch.Tensor) and fake.dtype != tensor.dtype and fake.shape == tensor.shape:
            given[position] = torch.empty_strided(fake.shape, fake.stride(), dtype=tensor.dtype, device=fake.device)
    return tuple(given) if isinstance(out, (list, tuple)) else given[0]


def _check_like(fake: torch.Tensor, tensor: torch.Tensor) -> None:
    if fake.dtype != tensor.dtype or fake.shape != tensor.shape:
        raise NotReplayable(f"{tensor.dtype} {list(tensor.shape)} where {fake.dtype} {list(fake.shape)} was recorded")


def _not_replayable(graph: RecordedGraph, recorder: Recorder) -> str:
    """The first operation of the graph that the daemon does not model; empty: none."""
    plan = recorder.plan
    known = graph.not_replayable.get(plan)
    if known is None:
        known = next((name for node in graph.graph.nodes if (name := _unmodelled(node, plan))), "")
        graph.not_replayable[plan] = known
    return known


def _unmodelled(node: torch.fx.Node, plan: Any) -> str:
    if node.op in ("placeholder", "get_attr", "output") or node.target is operator.getitem:
        return ""
    if not isinstance(node.target, torch._ops.OpOverload):
        return "" if getattr(node.target, "__module__", "") in ("_operator", "math") else str(node.target)
    info = plan.info(node.target)
    if info.name in _REWRITTEN:
        return ""
    if info.kind in (VIEW, SKIP, EMPTY) or _draws(info):
        return ""
    known = _is_modelled(info) or node.target in torch._decomp.decomposition_table
    return "" if info.kind == OPERATION and known else info.name


# Operations of compilers, and those on integers' bits, that others, which are modelled, say as well.
_REWRITTEN = {
    "prims::convert_element_type.default": lambda x, dtype: (torch.ops.aten._to_copy.default, (x,), {"dtype": dtype}),
    **{
        f"{namespace}::bitwise_{name}": lambda *args, func=func: _logical(func, *args)
        for namespace, end in (("aten", ".Tensor"), ("prims", ".default"))
        for name, func in (
            (f"and{end}", torch.ops.aten.logical_and.default),
            (f"or{end}", torch.ops.aten.logical_or.default),
            ("not.default", torch.ops.aten.logical_not.default),
        )
    },
}

# Modelled for all but rare arguments, for which their results are observed where that can be done.
_MOSTLY_MODELLED = tuple(
    f"aten::{name}"
    for name in ("index.Tensor", "_unsafe_index.Tensor", "index_put.default", "_unsafe_index_put.default")
)


def _logical(func: Any, *args: torch.Tensor) -> tuple[Any, Any, Any]:
    if any(tensor.dtype is not torch.bool for tensor in args):
        raise NotReplayable("bits of integers")
    return func, args, {}


def _rewritten(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    rewrite = _REWRITTEN.get(f"{func._schema.name}.{func._schema.overload_name or 'default'}")
    return (func, args, kwargs) if rewrite is None else rewrite(*args, **kwargs)


def _is_modelled(info: OperatorInfo) -> bool:
    return info.lowered or info.name in _MOSTLY_MODELLED


def _draws(info: OperatorInfo) -> bool:
    """Whether all that the operation gives is random; the compiler draws by operations of its own."""
    return info.kind == RANDOM or info.base.startswith(("inductor_random", "inductor_seed", "inductor_lookup_seed"))


def _identity(region: Any) -> str:
    """What tells one compiled graph from another, in every process."""
    key = getattr(region, "_fx_graph_cache_key", None) or getattr(region, "source_code", None)
    text = region.code if isinstance(region, RecordedGraph) else key or ""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


_SAME = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)

_logged: set[tuple[str, str]] = set()


def _log_once(name: str, why: str) -> None:
    if (name, why) not in _logged and len(_logged) < 1024:
        _logged.add((name, why))
        log.warning("plumbline: %s is audited as one opaque operation: %s", name, why)
