"""Gradients that a program itself scales between backward and its optimizer, as those do that average over their
micro-batches afterwards (`p.grad /= n`): whether a mean is taken before backward or after it is no difference of
mathematics. Another program scales them within backward, or their learning rate, which leaves the loss alone. So both
are read in two ways: as scaled ("grad:NAME", "loss"), and as they were ("unscaled:grad:NAME", "unscaled:loss"). A
factor that comes of the gradients, as clipping's does, is none of these."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .schema import OperatorInfo
from .storages import Window, modelled

if TYPE_CHECKING:
    from .capture import Recorder, Site

_NAMES = [
    f"aten::{base}.{overload}"
    for base, overloads in {
        "mul{}": ("Tensor", "Scalar"),
        "div{}": ("Tensor", "Scalar"),
        "_foreach_mul{}": ("Tensor", "Scalar"),
        "_foreach_div{}": ("Tensor", "Scalar"),
    }.items()
    for overload in overloads
]
_IN_PLACE, _FRESH = (frozenset(name.format(end) for name in _NAMES) for end in ("_", ""))

UNSCALES = "_amp_foreach_non_finite_check_and_unscale_"


@dataclass(frozen=True)
class Factor:
    """What gradients were scaled by: a Python number, or a tensor of one element, whose window and content it has."""

    divides: bool
    value: float | Window
    content: torch.Tensor | None
    site: Site

    @property
    def number(self) -> float:
        """Of a Python number: what it multiplies by."""
        return 1 / self.value if self.divides else self.value  # type: ignore[operator,return-value]

    @property
    def key(self) -> tuple[bool, Any]:
        """Alike where two are one factor."""
        return self.divides, self.value


def scales(info: OperatorInfo, args: Any, in_place: bool) -> bool:
    """Whether the call scales its first argument, or each of that list, by one factor: its second."""
    if info.name not in (_IN_PLACE if in_place else _FRESH) or len(args) < 2:
        return False
    factor = args[1]
    if isinstance(factor, torch.Tensor):
        return factor.dim() == 0 and bool(modelled(factor))
    return type(factor) in (float, int) and factor != 0


class Scalings:
    """The gradients of a step's last backward, by name, and what they were scaled by since."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._start = self._reads = 0  # Records, and numbers read of tensors, until backward ended.
        self._values: dict[str, int] = {}  # As backward left them.
        self._factors: dict[str, list[Factor]] = {}
        self._copies: dict[int, tuple[str, Factor]] = {}  # By value: whose scaled copy it is.
        self._found: dict[frozenset[int], bool] = {}

    def begin(self, gradients: dict[str, torch.Tensor]) -> None:
        """A backward has ended, and left these."""
        self._start, self._reads = len(self._recorder.records), len(self._recorder.numbers_read)
        entries = {name: self._recorder.storages.entry(gradient) for name, gradient in gradients.items()}
        self._values = {name: entry.value for name, entry in entries.items() if entry is not None}
        self._factors = {name: [] for name in gradients}
        self._copies.clear()
        self._found.clear()

    def hold(self, name: str, gradient: torch.Tensor) -> None:
        """The program put this in a gradient's place: it is the gradient from now on."""
        entry = self._recorder.storages.entry(gradient)
        if entry is not None:
            self._values[name], self._factors[name] = entry.value, []
            self._found.clear()

    def note(self, name: str, info: OperatorInfo, factor: Any) -> bool:
        """A gradient is about to be scaled in place; False: by what comes of the gradients themselves."""
        found = self._factor(info, factor)
        if found is not None:
            self._factors.setdefault(name, []).append(found)
        return found is not None

    def key(self, factor: Any) -> Any:
        """Alike where two factors are one."""
        return self._recorder.storages.read(factor) if isinstance(factor, torch.Tensor) else factor

    def is_constant(self, info: OperatorInfo, factor: Any) -> bool:
        """Whether a factor has nothing to do with gradients."""
        return self._factor(info, factor) is not None

    def copied(self, info: OperatorInfo, args: Any, values: list[Any], out: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """An operation gave scaled copies. Those of gradients, which may take their place (`p.grad = p.grad / n`)."""
        many = isinstance(out, (list, tuple))
        if not all(modelled(copy) for copy in (out if many else [out])):
            return  # Sparse ones.
        names = {value: name for name, value in self._values.items()}
        for window, copy in zip(values[0] if many else [values[0]], out if many else [out], strict=True):
            name, entry = names.get(window[0]), self._recorder.storages.entry(copy)
            found = None if name is None or entry is None else self._factor(info, args[1])
            if found is not None:
                self._copies[entry.value] = (name, found)
                yield name, copy

    def takes(self, name: str, gradient: torch.Tensor) -> bool:
        """Whether this is a scaled copy of the named gradient; it is the gradient from now on."""
        entry = self._recorder.storages.entry(gradient)
        copy = None if entry is None else self._copies.pop(entry.value, None)
        if copy is None or copy[0] != name:
            return False
        self._factors[name].append(copy[1])
        self._values[name] = entry.value
        return True

    def number(self, name: str) -> float | None:
        """What a gradient was multiplied by in all; None: tensors hold it, or it cannot be undone."""
        factors = self._factors.get(name, [])
        if any(factor.content is not None for factor in factors):
            return None
        product = math.prod(factor.number for factor in factors)
        return product if 0 < abs(product) < math.inf else None

    def common(self) -> list[Factor]:
        """What most of the gradients were scaled by, in order."""
        kinds = Counter(tuple(factor.key for factor in factors) for factors in self._factors.values())
        most = max(kinds, key=lambda kind: (kinds[kind], len(kind)), default=())
        alike = (factors for factors in self._factors.values() if tuple(factor.key for factor in factors) == most)
        return next(alike, [])

    def _factor(self, info: OperatorInfo, factor: Any) -> Factor | None:
        """None: it comes of the gradients, or leaves nothing of them."""
        value: Any = factor
        content = None
        if isinstance(factor, torch.Tensor):
            value, content = self._recorder.storages.read(factor), factor.detach().clone()
        elif not 0 < abs(value) < math.inf:
            return None
        if self._of_gradients(self._sources(value)):
            return None
        return Factor("div" in info.base, value, content, self._recorder.site)

    def _since(self) -> Iterator[tuple[Any, ...]]:
        """The records since backward ended, the last first."""
        records = self._recorder.records
        return (records[index] for index in range(len(records) - 1, self._start - 1, -1))

    def _sources(self, factor: Any) -> frozenset[int]:
        """The values that a factor may come of. Of a Python number any that was read since."""
        if isinstance(factor, tuple):
            return frozenset([factor[0]])
        if len(self._recorder.numbers_read) == self._reads:
            return frozenset()
        return frozenset(record[1][0] for record in self._since() if record[0] == "read")

    def _of_gradients(self, sources: frozenset[int]) -> bool:
        """Whether one of the values was computed of the gradients, or nobody knows of what."""
        if sources not in self._found:
            self._found[sources] = self._comes_of_gradients(set(sources))
        return self._found[sources]

    def _comes_of_gradients(self, wanted: set[int]) -> bool:
        gradients = set(self._values.values())
        for record in self._since() if wanted else ():
            if record[0] == "reinterpret" and record[2][0] in wanted:
                wanted.add(record[1][0])
            elif record[0] == "op" and any(result[0][0] in wanted for result in record[3]):
                if not isinstance(record[1], OperatorInfo):
                    return True  # A collective's result.
                wanted.update(_values_of(record[2]))
        return not wanted.isdisjoint(gradients)


def _values_of(arguments: list[Any]) -> Iterator[int]:
    for argument in arguments:
        for window in argument if isinstance(argument, list) else [argument]:
            window = getattr(window, "window", window)  # Of a number that was read.
            if isinstance(window, tuple) and len(window) == 5:
                yield window[0]


def covers(written: torch.Tensor, held: torch.Tensor) -> bool | None:
    """Whether one of two tensors of one storage is all that the other is; None: they have nothing in common."""
    if written.is_contiguous() and held.is_contiguous():
        (first, last), (start, end) = _bytes(written), _bytes(held)
        return None if end <= first or last <= start else first <= start and end <= last
    places = [(tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()) for tensor in (written, held)]
    return places[0] == places[1]


def _bytes(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.storage_offset() * tensor.element_size()
    return start, start + tensor.numel() * tensor.element_size()
