"""Gradients that a program changes between backward and its optimizer: it masks them, sets some of them, adds weight
decay or noise, limits each element, normalises them. Another program does the same before backward is done, or to the
update, so that no single reading of the gradient is right: beside what backward left ("grad:NAME") the step sends what
the optimizer is given ("given:NAME"), as it was before all were clipped by one factor, and the daemon takes the reading
that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .collected import Collected, windows
from .scalings import UNSCALES, Scalings, covers
from .schema import OperatorInfo
from .shards import local
from .storages import Window

if TYPE_CHECKING:
    from .capture import Recorder
    from .taps import Taps

# Operations that hand numbers on as they are.
_COPIES = frozenset(
    ("alias", "clone", "contiguous", "copy", "detach", "lift_fresh", "_to_copy", "_unsafe_view", "cat", "stack")
)


class _Left(NamedTuple):
    gradient: torch.Tensor  # Where the gradient lies.
    value: int  # What backward left there.
    weight: float


class Changes:
    """The gradients that backward left, and what was made of them since."""

    def __init__(self, recorder: Recorder, taps: Taps, collected: Collected, scalings: Scalings) -> None:
        self._recorder = recorder
        self._taps = taps
        self._scalings = scalings
        self._collected = collected
        self._left: dict[str, _Left] = {}
        self._touched: set[str] = set()  # Written otherwise than to scale them by one factor.
        self._terms: dict[str, tuple[Window, float, int]] = {}  # As they were given before they were clipped.
        self._factors: dict[str, list[Any]] = {}  # That come of gradients, and each was scaled by.
        self._unscaled: set[str] = set()  # By a gradient scaler.
        self._last_value = 0  # When a backward last ended.

    def left(self, name: str, gradient: torch.Tensor, value: int, weight: float) -> None:
        """This is the gradient, before any change."""
        self._left[name] = _Left(gradient, value, weight)
        self._last_value = self._recorder.storages.last_value

    def forget(self, name: str) -> None:
        for each in (self._left, self._terms, self._factors):
            each.pop(name, None)
        self._touched.discard(name)
        self._unscaled.discard(name)

    def clear(self) -> None:
        for each in (self._left, self._terms, self._factors):
            each.clear()

    def moved(self, name: str, gradient: torch.Tensor) -> None:
        """The gradient lies here now."""
        if name in self._left:
            self._left[name] = self._left[name]._replace(gradient=gradient)

    def written(self, name: str, written: torch.Tensor, info: OperatorInfo | None, factor: Any) -> bool:
        """A gradient is about to be written. Whether it is to be followed: what comes after clipping is no matter."""
        gradient, factors = self._left[name].gradient, self._factors.setdefault(name, [])
        if info is not None and info.base == UNSCALES:
            self._unscaled.add(name)
        elif info is not None and factor is not None and name in self._unscaled and covers(written, gradient):
            self._scalings.note(name, info, factor)
        if not (self._clips(info, factor) and covers(written, gradient)):
            if not factors:
                self._touched.add(name)
                self._terms.pop(name, None)
            return True
        self._tell_apart(name)
        path = self._path(name, gradient) if name in self._touched else None
        if path is not None and path.changes:
            self._terms[name] = self._observed(name, gradient, path)
        self._touched.discard(name)
        if factor is not None:
            factors.append(self._scalings.key(factor))
        return True

    def follow(self, name: str) -> None:
        """Waits for whatever is written next."""
        gradient = self._left[name].gradient

        def about_to_write(written: torch.Tensor, info: OperatorInfo | None, factor: Any) -> None:
            left = self._left.get(name)
            if left is None or left.gradient is not gradient:
                return
            if covers(written, gradient) is not None:
                self.written(name, written, info, factor)
            self.follow(name)

        await_write(self._recorder, gradient, about_to_write)

    def follow_all(self, held: Any) -> None:
        """Another backward has ended; of those that are `held` it is known already that they are followed."""
        for name in self._left:
            if name not in held:
                self.follow(name)

    def find(self, written: torch.Tensor, info: OperatorInfo | None, factor: Any) -> bool:
        """Something is about to be written that nobody waits for. Whether it is what took the place of a gradient, as
        in `p.grad = p.grad * mask`, and is clipped now: it is followed from now on."""
        if not _scales(info, factor) or written.numel() < 2 or self._recorder.sites.optimizer:
            return False
        entry = self._recorder.storages.entry(written)
        if entry is None or entry.value <= self._last_value:
            return False
        for parameter, name in self._taps.names.items():
            gradient = _gradient(parameter)
            if name in self._left and gradient is not None and self._is_elsewhere(name, gradient):
                self.moved(name, gradient)
                self._touched.add(name)
                self.follow(name)
        return bool(written.untyped_storage()._cdata in self._recorder.before_write)

    def take(self, name: str, parameter: torch.Tensor, last: bool) -> tuple[Window, float, int] | None:
        """What an optimizer is given in place of what backward left; None: the same, but for scaling and clipping.
        `last`: the step ends, and nobody was seen to take it; it may have been cleared since."""
        self._tell_apart(name)
        left, term = self._left.get(name), self._terms.get(name)
        if left is not None and term is None:
            gradient = left.gradient if parameter.grad is None else _gradient(parameter)
            if gradient is not None and (name in self._touched or self._is_elsewhere(name, gradient)):
                path = self._path(name, gradient, constant=not last)
                term = self._observed(name, gradient, path) if path is not None and path.changes else None
        self.forget(name)
        return term

    def _tell_apart(self, name: str) -> None:
        """Gradients that were scaled by a factor each, as by their own norms, were changed by that; only what scales
        all of them by one clips them."""
        last = len(self._factors.get(name, ())) - 1
        alike = {other: factors[last] for other, factors in self._factors.items() if len(factors) > last >= 0}
        if len(set(alike.values())) > 1:
            for other in alike:
                self._factors[other] = []
                self._terms.pop(other, None)
            self._touched.update(alike)

    def _clips(self, info: OperatorInfo | None, factor: Any) -> bool:
        """Whether an operation scales by a factor that comes of gradients, or that a gradient scaler keeps."""
        if info is None or not _scales(info, factor):
            return False
        return factor is None or not self._scalings.is_constant(info, factor)

    def _is_elsewhere(self, name: str, gradient: torch.Tensor) -> bool:
        return self._left[name].gradient.untyped_storage()._cdata != gradient.untyped_storage()._cdata

    def _observed(self, name: str, gradient: torch.Tensor, path: _Path) -> tuple[Window, float, int]:
        return self._taps.observe(gradient, 1.0 if path.unscales else self._left[name].weight)

    def _path(self, name: str, gradient: torch.Tensor, constant: bool = True) -> _Path | None:
        """What leads from what backward left to what lies there now; None: that is not known. `constant`: nothing need
        lead there, as where all of a gradient is set to zero."""
        entry = self._recorder.storages.entry(gradient)
        if entry is None or not entry.value:
            return None
        path, origin = _Path(self._collected), self._left[name].value
        reached = False
        waiting, seen = [entry.value], set()
        while waiting:
            value = waiting.pop()
            if value == origin:
                reached = True
            elif self._collected.is_left(value):
                path.changes = True  # Another parameter's gradient has a part in it, as where two are tied by hand.
            elif value not in seen and self._collected.reaches(value):
                seen.add(value)
                terms = path.back(value)
                if terms is None:
                    return None
                waiting.extend(terms)
        path.changes = path.changes or not reached
        return path if reached or constant else None


class _Path:
    """Operations that made a value, walked from the last one back."""

    def __init__(self, collected: Collected) -> None:
        self._collected = collected
        self.changes = self.unscales = False

    def back(self, value: int) -> list[int] | None:
        """The values that come of gradients and that this one is made of; None: that is not known."""
        made = self._collected.made(value)
        if made is None:
            return None
        record, given, before = made
        if record[0] == "reinterpret":
            return [record[1][0]]
        info = record[1]
        if info.base == UNSCALES:
            self.unscales = True
            return self._terms(given[:1])
        base = info.base.removeprefix("_foreach_").rstrip("_")
        self.changes = self.changes or bool(before) or base not in _COPIES
        return self._terms(given[1:] if info.overwrites else given) + before

    def _terms(self, given: list[Any]) -> list[int]:
        return [window[0] for window in windows(given) if self._collected.reaches(window[0])]


def await_write(recorder: Recorder, tensor: torch.Tensor, callback: Callable[..., None]) -> None:
    """Calls once, after those who wait already, before something is written where the tensor lies."""
    waiting, key = recorder.before_write, tensor.untyped_storage()._cdata
    first = waiting.get(key)

    def both(*write: Any) -> None:
        first(*write)  # type: ignore[misc]
        callback(*write)

    waiting[key] = callback if first is None else both


def _gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    gradient = parameter.grad
    return None if gradient is None or gradient.layout is not torch.strided else local(gradient)


def _scales(info: OperatorInfo | None, factor: Any) -> bool:
    return info is not None and (factor is not None or info.base == UNSCALES)
