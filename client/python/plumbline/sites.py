"""Where an operation comes from: module path, source line and phase. Active only while a step is sampled."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from types import CodeType, FrameType

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

LIBRARY, USER, MODULE_CALL, ENGINE_CALL = range(4)


class _Code:
    """What a walk over the stack wants to know of a code object."""

    __slots__ = ("code", "file", "kind", "lines")

    def __init__(self, code: CodeType) -> None:
        self.code = code  # Held, so that its address means no other.
        self.file = user_file(code.co_filename)
        self.kind = _CALLS.get(code, USER if self.file else LIBRARY)
        self.lines: dict[int, str] = {}  # By instruction, as Python works a line out anew each time: "train.py:41".

    def line(self, frame: FrameType) -> str:
        instruction = frame.f_lasti
        line = self.lines.get(instruction)
        if line is None:
            line = self.lines[instruction] = f"{self.file}:{frame.f_lineno}"
        return line


# The keys are addresses, because hashing a code object hashes all of its constants. Code of a notebook's cells may die,
# hence the bound.
_codes: dict[int, _Code] = {}
_library: set[int] = set()  # Of these, the ones that are LIBRARY.
_CODES_MAX = 65536


def _code_of(code: CodeType) -> _Code:
    """What is known of a code object, for the first time."""
    if len(_codes) >= _CODES_MAX:
        _codes.clear()
        _library.clear()
    known = _codes[id(code)] = _Code(code)
    if known.kind == LIBRARY:
        _library.add(id(code))
    return known


@functools.lru_cache(maxsize=4096)
def user_file(path: str) -> str:
    """Base name of a user's file; empty for Python's, PyTorch's and our own."""
    if path.startswith("<frozen") or path.startswith("<string>"):
        return ""
    path = os.path.realpath(path) if os.path.isabs(path) else os.path.abspath(path)
    library = path.startswith(_LIBRARY) and not (
        path.startswith(_SITE_PACKAGES) and not path.startswith(_LIBRARY_IN_SITE_PACKAGES)
    )
    return "" if library else os.path.basename(path)


_LIBRARY_IN_SITE_PACKAGES = tuple(path for path in _LIBRARY if path.startswith(_SITE_PACKAGES))


# What every call of a module runs in, and what every run of the autograd engine is called from.
_CALLS = {
    torch.nn.Module._call_impl.__code__: MODULE_CALL,
    torch.autograd.graph._engine_run_backward.__code__: ENGINE_CALL,
}


def uncompiled(name: str) -> str:
    """The name that a module, or its parameter, has without torch.compile and FullyShardedDataParallel."""
    if "_orig_mod" not in name and "_fsdp_wrapped_module" not in name:
        return name
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "_fsdp_wrapped_module"))


class Sites:
    """Gives each operation its site, from the Python frames above it; nothing of PyTorch is hooked or replaced.

    Backward operations get the site of the forward operation that they derive from: autograd numbers its nodes in
    order of creation, and a node is created just before its forward operation is dispatched.
    """

    def __init__(self) -> None:
        self.optimizer = False
        # Called with a module that runs outermost and has no name yet.
        self.on_root: Callable[[torch.nn.Module], object] | None = None
        self._names: dict[int, str] = {}
        self._roots = 0
        self._draws: dict[str, int] = {}
        self._by_sequence: dict[int, Site] = {}
        self._last_sequence = -1
        self._last_backward: Site = ("", "")

    def register(self, root: torch.nn.Module) -> str:
        """Names a model and all modules in it, and returns the prefix: none for the first root, "root1" and so on."""
        prefix = f"root{self._roots}" if self._roots else ""
        self._roots += 1
        for name, module in root.named_modules(prefix=prefix):
            self._names.setdefault(id(module), uncompiled(name))
        return prefix

    def path(self, module: torch.nn.Module) -> str | None:
        """None: not one of the registered models' modules. A module that runs outermost is registered first."""
        if self._name_of(module) is None:
            self._walk()
        return self._name_of(module)

    def _name_of(self, module: torch.nn.Module) -> str | None:
        name = self._names.get(id(module))
        if name is None:  # What torch.compile wraps goes by its own name.
            name = self._names.get(id(module._modules.get("_orig_mod")))
        return name

    def follow_region(self) -> tuple[int, str, str]:
        """The site of a compiled region, also of its backward: autograd made its node just before."""
        site = self.current()
        if site[0] == FORWARD:
            self._by_sequence[torch.autograd._get_sequence_nr() - 1] = site[1:]
        return site

    def draw(self, module: str) -> str:
        """Name of the next random draw in a module."""
        count = self._draws.get(module, 0)
        self._draws[module] = count + 1
        return f"{module}#{count}"

    def current(self) -> tuple[int, str, str]:
        """(phase, module, source) of the operation being dispatched."""
        if self.optimizer:
            return OPTIMIZER, "", _user_line(sys._getframe(2))
        node = torch._C._current_autograd_node()
        if node is None:
            site = self._walk()
            if torch.is_grad_enabled():
                sequence = torch.autograd._get_sequence_nr() - 1
                if sequence != self._last_sequence:
                    self._last_sequence = sequence
                    self._by_sequence[sequence] = site
            return FORWARD, *site
        site = self._walk(until_backward=True)
        if site[0]:  # Recomputation under activation checkpointing.
            if torch.is_grad_enabled():
                self._by_sequence[torch.autograd._get_sequence_nr() - 1] = site
            return BACKWARD, *site
        known = self._by_sequence.get(node._sequence_nr())
        if known is None and node.name().endswith("AccumulateGrad"):
            module, source = self._last_backward  # The line that adds up gradients is the one that calls backward.
            return BACKWARD, module, _user_line(sys._getframe(1)) or source
        if known is None:  # Part of the operation before it.
            known = self._last_backward
        else:
            self._last_backward = known
        return BACKWARD, *known

    def _walk(self, until_backward: bool = False) -> Site:
        """Path of the innermost named module that is running, and the innermost line of the user's code."""
        frame: FrameType | None = sys._getframe(1)
        module = source = ""
        running: torch.nn.Module | None = None
        library = _library
        while frame is not None:
            code = frame.f_code
            if id(code) in library:
                frame = frame.f_back
                continue
            known = _codes.get(id(code)) or _code_of(code)
            if known.kind == MODULE_CALL:
                running = frame.f_locals["self"]
                name = self._name_of(running)
                if name is not None:
                    module = name
                    break
            elif known.kind == USER:
                if not source:
                    source = known.line(frame)
            elif known.kind == ENGINE_CALL and until_backward:
                break
            frame = frame.f_back
        if running is not None and frame is None and self.on_root is not None:
            self.on_root(running)  # The outermost.
            return self._walk(until_backward)
        return module, source or _user_line(frame)


def _user_line(frame: FrameType | None) -> str:
    """The innermost line of the user's code, from a frame outwards."""
    library = _library
    while frame is not None:
        if id(frame.f_code) not in library:
            known = _codes.get(id(frame.f_code)) or _code_of(frame.f_code)
            if known.kind == USER:
                return known.line(frame)
        frame = frame.f_back
    return ""
