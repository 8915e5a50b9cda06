"""A backend for torch.compile that keeps the graphs which it compiles, so that what their kernels compute is audited
as operations of the step and not as one unknown."""

from __future__ import annotations

import functools
import logging
import re
import weakref
from collections.abc import Callable
from typing import Any

import torch

from . import compiler
from .sites import user_file

log = logging.getLogger("plumbline")

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


class RecordedGraph:
    """A graph of core operations as it was when it was compiled: a copy, as compilers change theirs."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        self.output = self.graph.graph_copy(module.graph, copies)
        self.constants = {
            node.target: _attribute(module, node.target) for node in module.graph.nodes if node.op == "get_attr"
        }
        # Each node has the module path and the source line that the compiler noted.
        self.sites = {copy: (_module(node.meta), _source(node.meta)) for node, copy in copies.items()}
        for node in self.graph.nodes:
            node.meta = {}
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        written = {argument for node in self.graph.nodes for argument in _written(node)}
        self.mutated = {index for index, node in enumerate(placeholders) if node in written}
        self.code = str(self.graph)
        self.not_replayable: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # By capture plan.


def compile_backend(backend: str | Callable[..., Any] = "inductor", **options: Any) -> Callable[..., Any]:
    """For torch.compile(backend=...): compiles as `backend` does, to the same code, and keeps each graph, so that an
    audited step that runs its region is audited in the graph's operations. Casts may be elided inside of a region.

    backend: "inductor" (options: its configuration), or another backend's name, or any backend: a function of a graph
    and example inputs that returns a callable. Those get core graphs, forward and backward apart.
    """
    return _RecordingBackend(backend, options)


class _RecordingBackend:
    records_graphs = True

    def __init__(self, backend: str | Callable[..., Any], options: dict[str, Any]) -> None:
        if options and backend != "inductor":
            raise TypeError(f"options of 'inductor' were given for backend {backend!r}")
        self._backend = backend
        self._options = options
        self.compiler_name = f"plumbline({backend})"

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        if self._backend == "inductor":
            return self._inductor(module, inputs)
        from torch._dynamo.backends.common import aot_autograd
        from torch._dynamo.backends.registry import lookup_backend

        # aot_eager's own share is what has been done here: its graphs are run as they are.
        name = "eager" if self._backend == "aot_eager" else self._backend
        inner = lookup_backend(name) if isinstance(name, str) else name

        def compile_graph(graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
            recorded = _record(graph)
            return _region(recorded, inner(graph, examples))

        compile_both = aot_autograd(fw_compiler=compile_graph, bw_compiler=compile_graph)
        return compile_both(module, inputs)

    def _inductor(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = _recording_inductor()(module, inputs, config_patches=self._options or None)
        return compiled


def record_default_backend() -> None:
    """From now on torch.compile's own backend keeps its graphs, too, as compile_backend("inductor") does: what is
    compiled later is audited in its operations. Inductor itself is loaded by who uses it."""
    wrapper = getattr(torch, "_TorchCompileInductorWrapper", None)
    if wrapper is None or getattr(wrapper.__call__, "records_graphs", False):
        return
    original = wrapper.__call__

    @functools.wraps(original)
    def compile_module(*args: Any, **kwargs: Any) -> Any:
        _recording_inductor()
        return original(*args, **kwargs)

    compile_module.records_graphs = True  # type: ignore[attr-defined]
    wrapper.__call__ = compile_module


def _recording_inductor() -> Callable[..., Any]:
    """Inductor's entry, which keeps each graph with the code that is made of it."""
    from torch._inductor import compile_fx as inductor

    if getattr(inductor.compile_fx, "records_graphs", False):
        return inductor.compile_fx
    original = inductor.compile_fx

    @functools.wraps(original)
    def compile_fx(*args: Any, inner_compile: Any = inductor.compile_fx_inner, **kwargs: Any) -> Any:
        # It calls itself, with what it was given.
        inner = inner_compile if getattr(inner_compile, "records_graphs", False) else _recording(inner_compile)
        # A cached pair of graphs would be loaded without being compiled, and so without being seen.
        with torch._functorch.config.patch(enable_autograd_cache=False):
            return original(*args, inner_compile=inner, **kwargs)  # type: ignore[misc]

    compile_fx.records_graphs = True  # type: ignore[attr-defined]
    inductor.compile_fx = compile_fx
    return compile_fx


def _recording(compile_inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compile_inner)
    def inner_compile(graph: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        recorded = _record(graph)
        code = compile_inner(graph, *args, **kwargs)
        code.plumbline_graph = recorded  # Found by who follows its calls.
        return code

    inner_compile.records_graphs = True  # type: ignore[attr-defined]
    return inner_compile


def _record(graph: torch.fx.GraphModule) -> RecordedGraph | None:
    """None where the graph cannot be kept: compiling goes on."""
    try:
        return RecordedGraph(graph)
    except Exception as error:
        log.warning("plumbline: a compiled graph is not recorded: %s: %s", type(error).__name__, error)
        return None


def _region(recorded: RecordedGraph | None, compiled: Callable[..., Any]) -> Callable[..., Any]:
    boxed = getattr(compiled, "_boxed_call", False)

    def call(inputs: list[Any]) -> Any:
        return compiled(inputs) if boxed else compiled(*inputs)

    def region(inputs: list[Any]) -> Any:
        follower = compiler.current
        return call(inputs) if follower is None else follower.region(recorded, call, inputs)

    region._boxed_call = True  # type: ignore[attr-defined]
    return region


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _written(node: torch.fx.Node) -> list[Any]:
    """Arguments that an operation writes."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    return [
        node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        for index, argument in enumerate(node.target._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _module(meta: dict[str, Any]) -> str:
    """Path of the innermost module below the compiled one."""
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    path = re.sub(r"^L(\['\w+'\]|\.\w+)|\._modules\b|\._orig_mod\b", "", path)
    return re.sub(r"[\[\]'\".]+", ".", path).strip(".")


def _source(meta: dict[str, Any]) -> str:
    """The user's innermost line."""
    frames = [(user_file(m["file"]), m["line"]) for m in _FRAME.finditer(meta.get("stack_trace") or "")]
    return next((f"{name}:{line}" for name, line in reversed(frames) if name), "")
