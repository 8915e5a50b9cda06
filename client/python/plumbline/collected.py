"""What the program made of its gradients between backward and the optimizer. Most leave them where backward put them,
and scale or clip them at most. Others collect them themselves, of micro-batches, replicas or samples, and hand the
optimizer the result: what the last backward left is then no gradient of theirs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .schema import UNSET, OperatorInfo
from .sites import OPTIMIZER

if TYPE_CHECKING:
    from .capture import Recorder

# What the optimizer is given: what the last backward left, or that changed afterwards; a sum of several gradients, each
# times a constant; anything else that is made of several.
LEFT, SUM, OTHER = range(3)

_TAKEN = frozenset(("alias", "clone", "contiguous", "copy", "detach", "_to_copy", "lift_fresh", "cat", "stack", "sum"))
_ZEROS = frozenset(("zero", "zeros", "zeros_like", "new_zeros"))


class Collected:
    """The operations between a step's backwards and its optimizers, and which gradients a value is made of."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._rounds: dict[str, list[int]] = {}  # What backwards left of a parameter since it was last updated.
        self._left: dict[int, set[str]] = {}  # The same by value, of the whole step: several may share a storage.
        self._parameters: dict[str, int] = {}
        self._runs = 0
        self._run_of: dict[int, int] = {}  # By what was left.
        self._taken: set[int] = set()  # Runs of which an optimizer took something.
        self._cleared: set[int] = set()  # Runs of which something was cleared.
        self._gradients: set[int] = set()  # Records of backward; not of those whose results have derivatives.
        self._made: dict[int, tuple[int, int]] = {}  # By value: its record, and which of the results it is.
        self._leaves: dict[int, int] = {}  # By value: its payload, and the record of that.
        self._payloads: dict[int, int] = {}
        self._indexed = 0
        self._reaching: dict[int, bool] = {}
        self._told = (0, False)
        self._additions: dict[tuple[int, int], bool] = {}

    def ran(self, start: int, differentiable: bool) -> None:
        """A backward ended that had begun with this record. `differentiable`: its results are part of the graph."""
        self._runs += 1
        if differentiable:
            return
        self._gradients.update(range(start, len(self._recorder.records)))

    def left(self, name: str, value: int, parameter: int) -> None:
        """A backward left a gradient, of a parameter that has this value now."""
        if self._parameters.get(name) != parameter:  # It was updated meanwhile, of whatever was there.
            self._rounds.pop(name, None)
        self._parameters[name] = parameter
        self._rounds.setdefault(name, []).append(value)
        self._left.setdefault(value, set()).add(name)
        self._run_of[value] = self._runs

    def used(self, name: str, last: bool) -> None:
        """An optimizer took what was there of a parameter's gradients: all, or what the last backward left."""
        runs = [self._run_of[value] for value in self._rounds.pop(name, ())]
        taken = len(runs) - 1 if last else 0
        self._cleared.update(runs[:taken])
        self._taken.update(runs[taken:])

    @property
    def in_vain(self) -> bool:
        """Whether nothing was made of all that a backward left."""
        return not self._cleared <= self._taken

    def left_any(self, name: str) -> bool:
        return bool(self._rounds.get(name))

    def is_left(self, value: int) -> bool:
        """Whether a backward left it, of whatever parameter."""
        return value in self._left

    def several(self, name: str) -> bool:
        """Whether several backwards left gradients."""
        return len(self._rounds.get(name, ())) > 1

    def apart(self, name: str) -> bool:
        """Whether several backwards left gradients that do not contain one another."""
        rounds = self._rounds.get(name, [])
        for pair in itertools.pairwise(rounds):
            if pair not in self._additions:
                self._additions[pair] = self._added(*pair)
            if not self._additions[pair]:
                return True
        return False

    def of(self, name: str, value: int) -> tuple[int, bool]:
        """What a value is to a parameter's gradients; of a SUM, whether its terms are weighted."""
        if self._runs < 2 or name not in self._rounds:
            return LEFT, False
        self._index()
        last = self._rounds[name][-1]
        waiting, seen = [value], set()
        others = weighted = False
        linear = True
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self._left:
                others = others or (name in self._left[value] and value != last)
                continue
            made = self._made.get(value)
            if made is None:
                linear = linear and self._is_zero(value)
            elif made[0] in self._gradients:
                others = True
            else:
                terms, is_linear, has_weights = self._terms(*made)
                waiting.extend(terms)
                linear, weighted = linear and is_linear, weighted or has_weights
        return (LEFT if not others else SUM if linear else OTHER), weighted

    def reaches(self, value: int) -> bool:
        """Whether a value was computed of gradients, otherwise than by what optimizers made of them."""
        self._index()
        waiting, path = [value], set()
        while waiting:
            value = waiting.pop()
            if value in path or self._reaching.get(value) is False:
                continue
            path.add(value)
            made = self._made.get(value)
            if value in self._left or self._reaching.get(value) or (made is not None and made[0] in self._gradients):
                self._reaching[value] = True  # Of those on the path nothing is known yet.
                return True
            if made is not None:
                waiting.extend(self._inputs(made[0]))
        self._reaching.update(dict.fromkeys(path, False))
        return False

    def made(self, value: int) -> tuple[Any, list[Any], list[int]] | None:
        """Of a value that the program made after backward: the record, the arguments that this result is made of, and
        what was there before in its storage if it wrote a part of that."""
        self._index()
        index, position = self._made.get(value, (-1, 0))
        if index < 0 or index in self._gradients:
            return None
        record = self._recorder.records[index]
        if record[0] == "reinterpret":
            return record, [], []
        if record[4] == OPTIMIZER or not isinstance(record[1], OperatorInfo):
            return None
        window, count, before, *_ = record[3][position]
        results = sum(result[3] == record[3][position][3] for result in record[3])
        given = [_own(argument, position, results) for argument in record[2]]
        return record, given, [before] if before and count != _size(window) else []

    def _added(self, before: int, after: int) -> bool:
        """Whether a later backward added to what an earlier one had left."""
        self._index()
        waiting, seen = [after], set()
        while waiting:
            value = waiting.pop()
            if value == before:
                return True
            made = self._made.get(value)
            if made is None or value in seen or (value in self._left and value != after):
                continue
            seen.add(value)
            if self._base(made[0]) in ("add", "mul", "div", *_TAKEN):
                waiting.extend(self._terms(*made)[0])
        return False

    def _index(self) -> None:
        records = self._recorder.records
        for index in range(self._indexed, len(records)):
            record = records[index]
            if record[0] == "op":
                for position, result in enumerate(record[3]):
                    self._made[result[0][0]] = (index, position)
            elif record[0] == "reinterpret":
                self._made[record[2][0]] = (index, 0)
            elif record[0] == "leaf":
                self._leaves[record[1]] = record[6]
            elif record[0] == "data":
                self._payloads[record[1]] = index
        self._indexed = len(records)

    def _is_zero(self, value: int) -> bool:
        """Whether it is a leaf that holds nothing but zeros, as a buffer to be added to does."""
        index = self._payloads.get(self._leaves.get(value, 0))
        content = None if index is None else self._recorder.records[index][2]
        return isinstance(content, memoryview) and bytes(content).count(0) == len(content)

    def _base(self, index: int) -> str:
        info = self._recorder.records[index][1]
        return info.base.removeprefix("_foreach_").rstrip("_") if isinstance(info, OperatorInfo) else ""

    def _inputs(self, index: int) -> Iterator[int]:
        record = self._recorder.records[index]
        if record[0] == "reinterpret":
            yield record[1][0]
        elif record[4] != OPTIMIZER and self._base(index) != "_amp_update_scale":
            yield from (window[0] for window in windows(record[2]))
            yield from (result[2] for result in record[3] if result[2])

    def _terms(self, index: int, position: int) -> tuple[list[int], bool, bool]:
        """What a result is made of but for factors of one element, whether it is linear in that, and whether it is a
        sum with weights."""
        record = self._recorder.records[index]
        if record[0] == "reinterpret":
            return [record[1][0]], True, False
        if record[4] == OPTIMIZER:
            return [], False, False
        base, size = self._base(index), _size(record[3][position][0])
        given = [_own(argument, position, len(record[3])) for argument in record[2]]
        scales = base in ("mul", "div")
        terms = [
            window for window in windows(given[:1] if scales and size == 1 else given) if _size(window) > 1 or size == 1
        ]
        values = [window[0] for window in terms]
        _, count, before, *_ = record[3][position]
        rest = [before] if before and count != size else []  # Of its storage it wrote a part.
        if base in _ZEROS:
            return rest, True, False
        values += rest
        if base in _TAKEN or base == "mean":
            return values, True, base == "mean"
        if base in ("add", "sub") and len(terms) == len(list(windows(given))):
            alpha = given[2] if len(given) > 2 else UNSET
            plain = _is_window(given[1]) or given[1] == 0
            weighted = base == "sub" or not (alpha is UNSET or alpha == 1)
            return values, plain and (not weighted or self._is_constant(alpha)), weighted
        if scales and len(terms) == 1:
            factors = [argument for argument in given if argument is not terms[0] and argument is not UNSET]
            return values, all(self._is_constant(factor) for factor in factors), True
        return values, False, True

    def _is_constant(self, factor: Any) -> bool:
        """Whether a factor has nothing to do with gradients."""
        if _is_window(factor):
            return not self.reaches(factor[0])
        if factor is UNSET or type(factor) is int:
            return True
        return type(factor) is float and not self._numbers_reach()

    def _numbers_reach(self) -> bool:
        """Whether Python was told a number that was computed of gradients: any of its numbers may be."""
        records = self._recorder.records
        start, told = self._told
        reads = (records[index][1][0] for index in range(start, len(records)) if records[index][0] == "read")
        self._told = len(records), told or any(self.reaches(value) for value in reads)
        return self._told[1]


def _is_window(argument: Any) -> bool:
    return isinstance(argument, tuple) and len(argument) == 5


def _own(argument: Any, position: int, results: int) -> Any:
    """Of a list that has one entry for each result, this result's."""
    return argument[position] if isinstance(argument, list) and len(argument) == results else argument


def windows(arguments: list[Any]) -> Iterator[Any]:
    for argument in arguments:
        for window in argument if isinstance(argument, list) else [argument]:
            window = getattr(window, "window", window)  # Of a number that was read.
            if _is_window(window) and window[0]:
                yield window


def _size(window: Any) -> int:
    return math.prod(window[2])
