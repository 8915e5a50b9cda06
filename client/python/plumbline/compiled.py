"""Compiled regions in a captured step: one opaque operation each, or, where the region's graph was recorded when it was
compiled (recorded.py), the operations of that graph.

A recorded graph is run on fake tensors, which have shapes, strides and storages but no content, so that each of its
operations can be written down as if it had been seen. Only what goes into the region and what comes out of it is real.
"""

from __future__ import annotations

import hashlib
import logging
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .capture import Recorder
from .compiler import Follower
from .definition import definitions
from .plan import CaptureFailed
from .recorded import RecordedGraph
from .regions import Region
from .schema import EMPTY, OPERATION, SKIP, VIEW
from .shadow import REWRITTEN, NotReplayable, Real, Shadow, Site, draws, is_modelled
from .sites import BACKWARD
from .storages import ABSENT, Window, modelled, stand_ins

log = logging.getLogger("plumbline")


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
                self._shadow = _GraphShadow(recorder, graph, self._site, self._name, given, self._mutated)

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
            mark = self._shadow.mark([*self._mutated.values(), *results])
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


class _GraphShadow(Shadow):
    """The operations of a recorded graph."""

    def __init__(
        self,
        recorder: Recorder,
        graph: RecordedGraph,
        site: Site,
        name: str,
        inputs: list[Any],
        mutated: dict[int, torch.Tensor],
    ) -> None:
        super().__init__(recorder, site, name)
        self._graph = graph
        self._inputs = inputs
        self._mutated = mutated

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
                    self.hand_over(values[node], tensor)

    def _operations(self, real: dict[torch.fx.Node, Real]) -> dict[torch.fx.Node, Any]:
        values: dict[torch.fx.Node, Any] = {}
        given = iter(enumerate(self._inputs))
        for node in self._graph.graph.nodes:
            args, kwargs = _given((node.args, node.kwargs), values)
            if node.op == "placeholder":
                index, value = next(given)
                values[node] = self.stand_in(*value) if isinstance(value, tuple) else value
                if index in self._mutated:
                    self._content[id(values[node])] = self._mutated[index]
            elif node.op == "get_attr":
                constant = self._graph.constants[node.target]
                values[node] = self.stand_in(self._recorder.storages.read(constant), constant.device)
            elif node.target is operator.getitem or not isinstance(node.target, torch._ops.OpOverload):
                values[node] = node.target(*args, **kwargs)  # Arithmetic of sizes.
            else:
                below, source = self._graph.sites[node]
                phase, module, outer = self._site
                site = (phase, ".".join(filter(None, (module, below))), source or outer)
                values[node] = self.operation(node.target, args, kwargs, site, real.get(node, {}))
        return values


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
    if info.name in REWRITTEN:
        return ""
    if info.kind in (VIEW, SKIP, EMPTY) or draws(info):
        return ""
    known = is_modelled(info, plan) or node.target in torch._decomp.decomposition_table or node.target in definitions
    return "" if info.kind == OPERATION and known else info.name


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
