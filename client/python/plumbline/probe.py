"""A first step of a program that uses torch.compile: it is looked at, and not captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import CompilerWatch, Follower


class ProbeStep(Follower):
    """Runs the step to see whether it compiles, and by what: `probed` is called with both at its end (an empty text: by
    backends that are followed)."""

    def __init__(self, probed: Callable[[bool, str], None]) -> None:
        self._probed = probed
        self._compiler = CompilerWatch(self)
        self._backend = ""
        self._compiled = False

    def __enter__(self) -> None:
        self._compiler.enter()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._compiler.leave()
        self._probed(self._compiled or not self._compiler.followed, self._backend)

    def unknown(self, backend: str) -> None:
        self._backend = backend

    def region(self, region: Any, call: Callable[[list[Any]], Any], inputs: list[Any]) -> Any:
        return call(inputs)

    def compiling(self, begins: bool) -> None:
        self._compiled = True
