"""What a process trains: its optimizers, and the models that hold their parameters."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..wrappers import unwrapped_optimizer


class Optimizers:
    """The optimizers that live, in the order of their construction."""

    def __init__(self) -> None:
        self._known: list[weakref.ref[torch.optim.Optimizer]] = []
        self._elsewhere: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        init = torch.optim.Optimizer.__init__

        @functools.wraps(init)
        def construct(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self.note(optimizer)

        self._init = init
        torch.optim.Optimizer.__init__ = construct

    def close(self) -> None:
        torch.optim.Optimizer.__init__ = self._init

    def note(self, optimizer: torch.optim.Optimizer) -> None:
        """Of those that were unpickled nobody heard before they step."""
        if all(known() is not optimizer for known in self._known):
            self._known.append(weakref.ref(optimizer, self._forget))

    def leave(self, optimizer: torch.optim.Optimizer) -> None:
        """It steps where nothing is audited."""
        self._elsewhere.add(optimizer)

    def all_are_back(self) -> None:
        """Another thread is audited from now on."""
        self._elsewhere.clear()

    def __iter__(self) -> Iterator[torch.optim.Optimizer]:
        """Without those that only wrap another."""
        for known in list(self._known):
            optimizer = known()
            if (
                optimizer is not None
                and optimizer not in self._elsewhere
                and unwrapped_optimizer(optimizer) is optimizer
            ):
                yield optimizer

    def _forget(self, known: weakref.ref[torch.optim.Optimizer]) -> None:
        self._known.remove(known)


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in getattr(optimizer, "param_groups", ()):
        yield from (item for item in group["params"] if isinstance(item, torch.Tensor))


def models_of(optimizers: Iterable[torch.optim.Optimizer]) -> list[torch.nn.Module]:
    """The outermost modules that hold parameters of the optimizers, in the order of these parameters.

    They are looked for among all objects: modules come to be by construction, by copying and by unpickling, and what
    encloses a model (a wrapper of data parallelism, another library's module) is not always what is called.
    """
    rank = {id(p): position for position, p in enumerate(p for o in optimizers for p in parameters_of(o))}
    modules = [m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module) and "_modules" in m.__dict__]
    parents: dict[int, list[torch.nn.Module]] = {}
    for module in modules:
        for child in module._modules.values():
            parents.setdefault(id(child), []).append(module)
    first: dict[torch.nn.Module, int] = {}  # Of the outermost modules: the first parameter that is held.
    for module in modules:
        held = [rank[id(parameter)] for parameter in module._parameters.values() if id(parameter) in rank]
        for outermost in _outermost(module, parents) if held else ():
            first[outermost] = min(*held, first.get(outermost, len(rank)))
    return sorted(first, key=lambda model: (first[model], type(model).__qualname__))


def _outermost(module: torch.nn.Module, parents: dict[int, list[torch.nn.Module]]) -> Iterator[torch.nn.Module]:
    climbed, seen = [module], {id(module)}
    while climbed:
        at = climbed.pop()
        above = parents.get(id(at))
        if not above:
            yield at
        for parent in above or ():
            if id(parent) not in seen:
                seen.add(id(parent))
                climbed.append(parent)
