"""Runs a script, or a module, as `python SCRIPT` and `python -m MODULE` do."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any


class NotFound(Exception):
    """What Python would say of a script that is not there, and its exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Script:
    """The program that `name` and `arguments` stand for. Raises NotFound."""

    def __init__(self, name: str, arguments: list[str], is_module: bool) -> None:
        spec: ModuleSpec | None = None
        if is_module:
            sys.path[0] = os.getcwd()
            spec = _spec(name)
            self.path, loader = spec.origin or name, spec.loader
            code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
        else:
            self.path = os.path.abspath(name)
            loader = SourceFileLoader("__main__", self.path)
            code = _compiled(name, self.path)
            sys.path[0] = os.path.dirname(os.path.realpath(name))
        self._code: CodeType = code
        sys.argv = [self.path if is_module else name, *arguments]
        main = self._main = ModuleType("__main__")
        main.__file__, main.__loader__, main.__spec__ = self.path, loader, spec
        main.__package__ = spec.parent if spec is not None else None
        main.__dict__.update(__builtins__=builtins, __cached__=spec.cached if spec is not None else None)
        main.__dict__.setdefault("__annotations__", {})

    def run(self) -> BaseException | None:
        """Runs it to its end. Returns what it raised, from its own frames on."""
        sys.modules["__main__"] = self._main  # What it pickles is found there.
        try:
            exec(self._code, self._main.__dict__)
        except BaseException as error:
            trace = error.__traceback__
            return error.with_traceback(trace.tb_next if trace is not None else None)
        return None


def leave(error: BaseException | None) -> int:
    """Exit status of a program that raised `error`, which is printed as Python would. SystemExit and KeyboardInterrupt
    are raised again: Python itself knows what to do."""
    if error is None:
        return 0
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        raise error
    sys.excepthook(type(error), error, error.__traceback__)
    return 1


def _compiled(name: str, path: str) -> Any:
    try:
        with io.open_code(path) as file:
            text = file.read()
    except OSError as error:
        raise NotFound(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}", 2) from None
    return compile(text, path, "exec", dont_inherit=True)


def _spec(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except ImportError:
        spec = None
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise NotFound(f"No module named {name}", 1)
    return spec
