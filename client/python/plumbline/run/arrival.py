"""Waits until a program imports PyTorch. What a program sets up before that, such as the number of threads in its
environment, must find PyTorch not yet loaded."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, imported: Callable[[], None]) -> None:
        self._name = name
        self._imported = imported

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self._imported()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def when_imported(name: str, imported: Callable[[], None]) -> None:
    """Calls `imported` when the module has been imported; at once where it is."""
    if name in sys.modules:
        imported()
    else:
        sys.meta_path.insert(0, _Finder(name, imported))
