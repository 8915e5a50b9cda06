"""Tells when a module is called that no other module called, for as long as somebody waits for that.

The doorway stands in `torch.nn.Module.__call__`, and where torch.compile's regions are entered, while it is open. It
steps out of the way for the length of each such call: what the compiler traces is PyTorch as it was delivered. Global
hooks on modules would do neither.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

_EVAL_FRAME = "torch._dynamo.eval_frame"
_REGION_ENTRY = "_callback_from_stance"  # What every entry into a compiled region calls.
_TRACER_COPIES = (("torch._dynamo.utils", "unpatched_nn_module_call"),)  # Taken when the module is loaded.


class Doorway:
    """`entered(module)` is called before an outermost call, with None for a compiled region that no module encloses."""

    def __init__(self, entered: Callable[[torch.nn.Module | None], None]) -> None:
        self._entered = entered
        self._open = False
        self._module_call = torch.nn.Module.__dict__["__call__"]
        self._region_entry: Any = None
        doorway = self

        @functools.wraps(self._module_call)
        def call(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if not doorway._open:
                return doorway._module_call(module, *args, **kwargs)
            doorway._step_aside()
            try:
                doorway._entered(module)
                return doorway._module_call(module, *args, **kwargs)
            finally:
                if doorway._open:
                    doorway._stand()

        self._call = call

    @property
    def is_open(self) -> bool:
        return self._open

    def open(self) -> None:
        if not self._open:
            self._open = True
            self._stand()

    def close(self) -> None:
        self._open = False
        self._step_aside()

    def compiler_was_loaded(self) -> None:
        """The compiler took note of how modules are called; it must not know of the doorway."""
        for name, attribute in _TRACER_COPIES:
            holder = sys.modules.get(name)
            if getattr(holder, attribute, None) is self._call:
                setattr(holder, attribute, self._module_call)
        if self._open:
            self._stand()

    def _stand(self) -> None:
        if torch.nn.Module.__dict__["__call__"] is self._module_call:
            torch.nn.Module.__call__ = self._call
        compiler = sys.modules.get(_EVAL_FRAME)
        entry = getattr(compiler, _REGION_ENTRY, None)
        if entry is None or self._region_entry is not None:
            return

        def enter_region(callback: Any) -> Any:
            if callable(callback):
                self._step_aside()
                self._entered(None)
            return entry(callback)

        self._region_entry = (compiler, entry, enter_region)
        setattr(compiler, _REGION_ENTRY, enter_region)

    def _step_aside(self) -> None:
        if torch.nn.Module.__dict__["__call__"] is self._call:
            torch.nn.Module.__call__ = self._module_call
        if self._region_entry is not None:
            compiler, entry, own = self._region_entry
            if getattr(compiler, _REGION_ENTRY) is own:
                setattr(compiler, _REGION_ENTRY, entry)
            self._region_entry = None
