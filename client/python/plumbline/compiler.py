"""Follows torch.compile while a step is captured: which compiled regions run, and when the compiler itself does.

Kernels that Inductor made write tensors out of sight, so each call of one is a region (compiled.py). The backends that
run a graph by PyTorch's own operations hide nothing: these are captured one by one. Of any other backend nothing is
known, so that a step which runs one is not audited, unless the backend was wrapped (recorded.py).
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any, Protocol

import torch

_EVAL_FRAME = "torch._dynamo.eval_frame"
_OUTPUT_CODE = "torch._inductor.output_code"

# Backends that run the graph's operations as the eager program would.
_EAGER = ("eager", "eager_noexcept", "aot_eager", "aot_eager_decomp_partition")


class Follower(Protocol):
    """What a capture does with compiled code."""

    def unknown(self, backend: str) -> None:
        """A region of a backend that hides what it computes is entered."""

    def region(self, region: Any, call: Callable[[list[Any]], Any], inputs: list[Any]) -> Any:
        """Runs `call` on the inputs of a compiled graph, and returns what it returns."""

    def compiling(self, begins: bool) -> None:
        """The compiler begins to run, in the calling thread, or ends."""


# What the regions of wrapped backends call while a step is captured.
current: Follower | None = None


def in_use() -> bool:
    """Whether this process has ever asked for compilation."""
    compiler = sys.modules.get(_EVAL_FRAME)
    if compiler is None:
        return False
    backends = getattr(compiler, "cached_backends", None)  # Contexts that switch compilation off are there as None.
    return backends is None or any(callable(backend) for backend in backends.values())


class CompilerWatch:
    """Tells a follower of compiled code between `enter` and `leave`."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._undo: list[Callable[[], None]] = []
        self._follows_inductor = False
        self._waits = False  # For the compiler to be loaded.
        self.followed = False  # Entries into compiled regions are seen.

    def enter(self) -> None:
        global current
        compiler = sys.modules.get(_EVAL_FRAME)
        if compiler is None:
            self._await_compiler()
            return
        if not hasattr(compiler, "_callback_from_stance"):
            return
        original = compiler._callback_from_stance

        def callback_from_stance(callback: Any) -> Any:  # What every entry into a compiled region calls.
            if callable(callback) and not _is_known(compiler.innermost_backend(callback)):
                self._follower.unknown(_name(compiler.innermost_backend(callback)))
            return original(callback)

        self._replace(compiler, "_callback_from_stance", callback_from_stance)
        self._follow_compilation()
        self._follow_inductor()
        current = self._follower
        self.followed = True

    def leave(self) -> None:
        global current
        self._waits = False
        if self.followed:
            current = None
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _await_compiler(self) -> None:
        """Follows it from the first call of torch.compile on: to load it costs seconds, and most programs never do."""
        original = torch.compile
        self._waits = True

        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            if self._waits:
                self._waits = False
                self._follower.compiling(True)
                try:
                    importlib.import_module(_EVAL_FRAME)
                finally:
                    self._follower.compiling(False)
                self.enter()
            return original(*args, **kwargs)

        self._replace(torch, "compile", compile)

    def _replace(self, holder: Any, name: str, value: Any) -> None:
        original = getattr(holder, name)
        setattr(holder, name, value)
        self._undo.append(lambda: setattr(holder, name, original))

    def _follow_compilation(self) -> None:
        from torch._dynamo.callback import callback_handler

        # Not registered as callbacks: torch._dynamo.reset() forgets those.
        begins, ends = callback_handler.run_start_callbacks, callback_handler.run_end_callbacks

        def begin(args: Any) -> None:
            self._follower.compiling(True)
            begins(args)

        def end(args: Any) -> None:
            ends(args)
            self._follow_inductor()  # Its first graph loads it.
            self._follower.compiling(False)

        self._replace(callback_handler, "run_start_callbacks", begin)
        self._replace(callback_handler, "run_end_callbacks", end)

    def _follow_inductor(self) -> None:
        code = sys.modules.get(_OUTPUT_CODE)
        if code is None or self._follows_inductor:
            return
        self._follows_inductor = True
        original = code.CompiledFxGraph.__call__

        def call(graph: Any, inputs: Any) -> Any:
            return self._follower.region(graph, lambda given: original(graph, given), inputs)

        self._replace(code.CompiledFxGraph, "__call__", call)


def _is_known(backend: Any) -> bool:
    inner = getattr(backend, "compiler_fn", backend)
    if _name(backend) == "inductor" or getattr(inner, "records_graphs", False):
        return True
    from torch._dynamo.backends.registry import lookup_backend

    return any(inner is lookup_backend(known) for known in _EAGER)


def _name(backend: Any) -> str:
    for name in (getattr(backend, "compiler_name", None), getattr(backend, "__name__", None)):
        if isinstance(name, str):
            return name
    return type(backend).__name__
