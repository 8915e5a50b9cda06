"""Notices regions that torch.compile made. Their kernels write tensors out of our sight, so a step that runs one is
not audited; and what a capture changes for a step could make the compiler compile again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_MODULE = "torch._dynamo.eval_frame"


def in_use() -> bool:
    """Whether this process has ever asked for compilation."""
    compiler = sys.modules.get(_MODULE)
    if compiler is None:
        return False
    backends = getattr(compiler, "cached_backends", None)  # Contexts that switch compilation off are there as None.
    return backends is None or any(callable(backend) for backend in backends.values())


class CompilerWatch:
    """Calls `entered` at each entry into a compiled region, between `enter` and `leave`."""

    def __init__(self, entered: Callable[[], None]) -> None:
        self._entered = entered
        self._original: Any = None
        self._seen = False

    def enter(self) -> None:
        compiler = sys.modules.get(_MODULE)
        original = getattr(compiler, "_callback_from_stance", None)
        if compiler is None or original is None:
            return

        def callback_from_stance(callback: Any) -> Any:  # What every entry into a compiled region calls.
            if callable(callback):
                self._seen = True
                self._entered()
            return original(callback)

        self._original = original
        compiler._callback_from_stance = callback_from_stance  # type: ignore[attr-defined]

    def leave(self) -> None:
        if self._original is not None:
            sys.modules[_MODULE]._callback_from_stance = self._original  # type: ignore[attr-defined]
            self._original = None

    def used(self) -> bool:
        """Whether a region ran. Where entries cannot be followed (the compiler was loaded since, or is of a release
        that enters otherwise): whether compilation was ever asked for."""
        return self._seen if self._original is not None else in_use()
