"""Which modules of a model a partial step audits: those that patterns name, or another slice at each sampled step."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from .errors import PlumblineError

ROTATE = "rotate"
SHARE_FIRST = 1 / 16  # Of the model, in a rotation's first slice: what a module costs is yet to be measured.

MODULES_MAX = 4096  # That a step names.

Pattern = str | re.Pattern[str]

# Never called themselves: nothing in them to audit.
_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict)


@dataclass
class Part:
    """What one step audits. A module stands for its own operations: those that no module inside of it runs."""

    names: dict[torch.nn.Module, str]  # Of every module that can be called, by its path.
    chosen: set[str]
    share: float = 1.0  # Of the model's weight (see Rotation).
    parameters: set[torch.Tensor] = field(default_factory=set)  # All of whose owners are chosen.
    parameters_total: int = 0  # Elements of the model.


def module_names(models: Iterable[torch.nn.Module]) -> dict[torch.nn.Module, str]:
    """Path of every module, as Sites names them."""
    names: dict[torch.nn.Module, str] = {}
    for index, model in enumerate(models):
        for name, module in model.named_modules(prefix=f"root{index}" if index else ""):
            names.setdefault(module, name)
    return names


def _roots(models: list[torch.nn.Module]) -> set[str]:
    return {f"root{index}" if index else "" for index in range(len(models))}


def _owners(names: dict[torch.nn.Module, str]) -> dict[torch.Tensor, list[str]]:
    """Paths of the modules that hold each parameter."""
    owners: dict[torch.Tensor, list[str]] = {}
    for module, name in names.items():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(name)
    return owners


def _part(names: dict[torch.nn.Module, str], chosen: set[str], share: float = 1.0) -> Part:
    owners = _owners(names)
    called = {module: name for module, name in names.items() if not isinstance(module, _CONTAINERS)}
    return Part(
        called,
        chosen & set(called.values()),
        share,
        {parameter for parameter, held_by in owners.items() if chosen.issuperset(held_by)},
        sum(parameter.numel() for parameter in owners),
    )


def whole(models: Iterable[torch.nn.Module]) -> Part:
    names = module_names(models)
    return _part(names, set(names.values()))


class Patterns:
    """Modules whose path a pattern matches, with everything inside of them; and the roots' own operations."""

    def __init__(self, models: list[torch.nn.Module], patterns: list[Pattern]) -> None:
        self._models = models
        self._patterns = patterns
        names = set(module_names(models).values())
        for pattern in patterns:
            if not any(_matches(pattern, name) for name in names):
                text = pattern if isinstance(pattern, str) else pattern.pattern
                known = ", ".join(repr(name) for name in sorted(names - {""}, key=lambda n: (n.count("."), n))[:6])
                raise PlumblineError(
                    f"scope: {text!r} matches no module; paths are as in named_modules(), such as {known or 'none'}"
                )

    def choose(self) -> Part:
        names = module_names(self._models)
        matched = {name for name in names.values() if any(_matches(pattern, name) for pattern in self._patterns)}
        chosen = {name for name in names.values() if any(_within(name, outer) for outer in matched)}
        return _part(names, chosen | _roots(self._models))

    def audited(self) -> None:
        """The part last chosen was captured."""


class Rotation:
    """Slices of a model in turn, in the order of its modules: each holds as many as make up a share of its weight.

    A module weighs as many elements as its own parameters have, and the mean of all modules for its activations. What
    holds the same parameter is taken together. The roots' own operations are part of every slice.
    """

    def __init__(self, models: list[torch.nn.Module], share: float = SHARE_FIRST) -> None:
        self._models = models
        self.share = share
        self._at = 0
        self._taken = 0

    def choose(self) -> Part:
        names = module_names(self._models)
        units = [(name, weight) for name, weight in _weights(names) if name not in _roots(self._models)]
        owners = [set(held_by) for held_by in _owners(names).values() if len(held_by) > 1]
        chosen: set[str] = set()
        total = math.fsum(weight for _, weight in units)
        left = self.share * total
        self._taken = 0
        while self._taken < len(units) and (left > 0 or not self._taken):
            name, weight = units[(self._at + self._taken) % len(units)]
            chosen.add(name)
            left -= weight
            self._taken += 1
        for together in owners:
            if together & chosen:
                chosen |= together
        weighed = math.fsum(weight for name, weight in units if name in chosen)
        return _part(names, chosen | _roots(self._models), weighed / total if total else 1.0)

    def audited(self) -> None:
        """The slice last chosen was captured: the next one begins behind it."""
        count = sum(1 for _ in _weights(module_names(self._models))) - len(_roots(self._models))
        self._at = (self._at + self._taken) % count if count > 0 else 0


def _weights(names: dict[torch.nn.Module, str]) -> Iterator[tuple[str, float]]:
    own = {
        name: sum(parameter.numel() for parameter in module.parameters(recurse=False))
        for module, name in names.items()
        if not isinstance(module, _CONTAINERS)
    }
    mean = max(1.0, math.fsum(own.values()) / max(1, len(own)))
    for name, elements in own.items():
        yield name, elements + mean


def _matches(pattern: Pattern, name: str) -> bool:
    if isinstance(pattern, str):
        return fnmatch.fnmatchcase(name, pattern)
    return pattern.fullmatch(name) is not None


def _within(name: str, outer: str) -> bool:
    return not outer or name == outer or name.startswith(outer + ".")


def checked_scope(models: list[torch.nn.Module], scope: str | Iterable[Pattern] | None) -> Patterns | Rotation | None:
    """What `watch` was given as scope; PlumblineError where it can name no module."""
    if scope is None:
        return None
    if scope == ROTATE:
        return Rotation(models)
    patterns = [scope] if isinstance(scope, (str, re.Pattern)) else list(scope)
    for pattern in patterns:
        if not isinstance(pattern, (str, re.Pattern)):
            raise PlumblineError(f"scope: expected 'rotate' or patterns of module paths, found {pattern!r}")
    if not patterns:
        raise PlumblineError("scope: expected 'rotate' or at least one pattern of module paths, found none")
    return Patterns(models, patterns)
