"""Calls back where PyTorch computes gradients, steps an optimizer or is asked to compile; each ends by what it
returns. Nothing but the call is added to what PyTorch does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Undo = Callable[[], None]


def follow_optimizers(starts: Callable[..., None], stepped: Callable[..., None]) -> Undo:
    """Both are given the optimizer, and the arguments of its step without it."""

    def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        starts(optimizer, args[1:], kwargs)

    first = register_optimizer_step_pre_hook(before)
    last = register_optimizer_step_post_hook(stepped)

    def undo() -> None:
        first.remove()
        last.remove()

    return undo


def follow_engine(runs: Callable[[], None]) -> Undo:
    return _before(torch.autograd, "_engine_run_backward", runs)


def follow_compiler(loaded: Callable[[], None]) -> Undo:
    original = torch.compile

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            loaded()

    return _replace(torch, "compile", compile)


def _before(holder: Any, name: str, called: Callable[[], None]) -> Undo:
    original = getattr(holder, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        called()
        return original(*args, **kwargs)

    return _replace(holder, name, call)


def _replace(holder: Any, name: str, value: Any) -> Undo:
    original = getattr(holder, name)
    setattr(holder, name, value)

    def undo() -> None:
        if getattr(holder, name) is value:
            setattr(holder, name, original)

    return undo
