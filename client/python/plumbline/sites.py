"""Where an operation comes from: module path, source line and phase. Active only while a step is sampled."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from types import CodeType
from typing import Any

import torch

FORWARD, BACKWARD, OPTIMIZER = 1, 2, 3

Site = tuple[str, str]  # Module path, source line.

_LIBRARY = tuple(
    os.path.join(os.path.realpath(path), "")
    for path in {
        os.path.dirname(torch.__file__),
        os.path.dirname(os.path.abspath(__file__)),
        sysconfig.get_path("stdlib"),
    }
)
_SITE_PACKAGES = tuple(os.path.join(sysconfig.get_path(key), "") for key in ("purelib", "platlib"))

# Whether a code object is the user's. Code objects are few; those of a notebook's cells may die, hence the bound.
_user_code: dict[CodeType, str] = {}
_USER_CODE_MAX = 65536


def _user_file(code: CodeType) -> str:
    """Base name of the file of a user's code object; empty for Python's, PyTorch's and our own."""
    path = code.co_filename
    if path.startswith("<frozen") or path.startswith("<string>"):
        return ""
    path = os.path.realpath(path) if os.path.isabs(path) else os.path.abspath(path)
    library = path.startswith(_LIBRARY) and not (
        path.startswith(_SITE_PACKAGES) and not path.startswith(_LIBRARY_IN_SITE_PACKAGES)
    )
    return "" if library else os.path.basename(path)


_LIBRARY_IN_SITE_PACKAGES = tuple(path for path in _LIBRARY if path.startswith(_SITE_PACKAGES))


def user_line() -> str:
    """Innermost line outside of PyTorch, Python's library and this package: "train.py:41"; empty if there is none."""
    frame = sys._getframe(1)
    known = _user_code
    while frame is not None:
        code = frame.f_code
        name = known.get(code)
        if name is None:
            if len(known) >= _USER_CODE_MAX:
                known.clear()
            name = known[code] = _user_file(code)
        if name:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class ModuleStack:
    """Paths of the modules that are running, by thread, and the count of random draws in each."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._local = threading.local()
        self._draws: dict[str, int] = {}
        self._roots = 0
        self._original: Any = None

    def register(self, root: torch.nn.Module) -> str:
        """Names a model and all modules in it, and returns the prefix: none for the first root, "root1" and so on."""
        prefix = f"root{self._roots}" if self._roots else ""
        self._roots += 1
        for name, module in root.named_modules(prefix=prefix):
            self._names.setdefault(id(module), name)
        return prefix

    def knows(self, module: torch.nn.Module) -> bool:
        return id(module) in self._names

    def path(self) -> str:
        stack = getattr(self._local, "stack", None)
        return stack[-1] if stack else ""

    def draw(self) -> str:
        """Name of the next random draw in the running module."""
        path = self.path()
        count = self._draws.get(path, 0)
        self._draws[path] = count + 1
        return f"{path}#{count}"

    def install(self, on_root: Any) -> None:
        """Follows module calls until `uninstall`. `on_root` is called with a module that runs unnamed and outermost.

        Replaces Module.__call__ and adds no hook: hooks change what PyTorch and compiled code do in a call.
        """
        original = torch.nn.Module.__call__
        names, local = self._names, self._local

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            stack = getattr(local, "stack", None)
            if stack is None:
                stack = local.stack = []
            name = names.get(id(module))
            if name is None:
                if not stack:
                    on_root(module)
                    name = names.get(id(module), "")
                else:
                    name = stack[-1]
            stack.append(name)
            try:
                return original(module, *args, **kwargs)
            finally:
                stack.pop()

        self._original = original
        torch.nn.Module.__call__ = call  # type: ignore[method-assign]

    def uninstall(self) -> None:
        if self._original is not None:
            torch.nn.Module.__call__ = self._original  # type: ignore[method-assign]
            self._original = None


class Sites:
    """Gives each operation its site. Backward operations get that of the forward operation they derive from: autograd
    numbers its nodes in order of creation, and a node is created just before its forward operation is dispatched."""

    def __init__(self, modules: ModuleStack) -> None:
        self.modules = modules
        self.optimizer = False
        self._by_sequence: dict[int, Site] = {}
        self._last_sequence = -1
        self._last_backward: Site = ("", "")

    def current(self) -> tuple[int, str, str]:
        """(phase, module, source) of the operation being dispatched, in whatever phase it is."""
        if self.optimizer:
            return OPTIMIZER, "", user_line()
        node = torch._C._current_autograd_node()
        if node is None:
            module, source = self.modules.path(), user_line()
            if torch.is_grad_enabled():
                sequence = torch.autograd._get_sequence_nr() - 1
                if sequence != self._last_sequence:
                    self._last_sequence = sequence
                    self._by_sequence[sequence] = (module, source)
            return FORWARD, module, source
        module = self.modules.path()
        if module:  # Recomputation under activation checkpointing.
            source = user_line()
            if torch.is_grad_enabled():
                self._by_sequence[torch.autograd._get_sequence_nr() - 1] = (module, source)
            return BACKWARD, module, source
        site = self._by_sequence.get(node._sequence_nr())
        if site is None:  # Accumulation of a gradient: part of the operation that made it.
            site = self._last_backward
        else:
            self._last_backward = site
        return BACKWARD, site[0], site[1]
