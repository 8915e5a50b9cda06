"""The modules that a callable holds: what it closes over, is bound to, or was given beforehand."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch


def held_modules(program: Any) -> list[torch.nn.Module]:
    """Modules that a function, a method or a partial call of one refers to, each once and without those that are part
    of another. Others are not looked for (globals, attributes, elements of containers)."""
    found = {id(value): value for value in _held(program) if isinstance(value, torch.nn.Module)}
    parts = {id(part) for module in found.values() for part in module.modules() if part is not module}
    return [module for name, module in found.items() if name not in parts]


def _held(program: Any) -> Iterator[Any]:
    while isinstance(program, functools.partial):
        yield from program.args
        yield from program.keywords.values()
        program = program.func
    yield getattr(program, "__self__", program)
    function = getattr(program, "__func__", program)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # The name is not bound yet.
            continue
    yield from getattr(function, "__defaults__", None) or ()
    yield from (getattr(function, "__kwdefaults__", None) or {}).values()


def holder_of(module: torch.nn.Module, holders: list[torch.nn.Module]) -> torch.nn.Module:
    """The first holder that the module is a part of; the module itself where none is."""
    return next((holder for holder in holders if any(part is module for part in holder.modules())), module)
