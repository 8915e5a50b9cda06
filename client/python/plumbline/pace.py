"""What auditing costs a training, measured by the training's own steps."""

from __future__ import annotations

import statistics
import time
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

PLAIN_KEPT = 31
PLAIN_NEEDED = 5
LATER_KEPT = 8 * PLAIN_KEPT
UNUSUAL = 2.0  # Beyond twice the median a step was held up by something else (a checkpoint, an evaluation).


@dataclass
class Sample:
    """A sampled step and those that ran until it was answered."""

    step: int
    slice: float
    bytes: int = 0
    inside: float | None = None  # Seconds that the step took,
    later: deque[float] = field(default_factory=lambda: deque(maxlen=LATER_KEPT))  # and those behind it.

    def cost(self, plain: float) -> float:
        """Seconds beyond those of steps without audit, each of which takes `plain`."""
        later = sum(min(seconds, UNUSUAL * plain) - plain for seconds in self.later)
        return max(0.0, (self.inside or plain) - plain + later)


class PaceMeter:
    """Told of each step's begin and end: what lies between two steps is not ours, however long it takes. Steps without
    audit are those that ran while no sampled step was on its way; a sampled step costs what it and those behind it took
    beyond their median, until its answer."""

    def __init__(self) -> None:
        self.steps = 0
        self._plain: deque[float] = deque(maxlen=PLAIN_KEPT)
        self._periods: deque[float] = deque(maxlen=PLAIN_KEPT)  # From one begin to the next.
        self._began: float | None = None
        self._open: Sample | None = None
        self._settled: deque[Sample] = deque(maxlen=8)

    def begins(self, now: float, idle: bool) -> None:
        """`idle`: every sampled step was answered."""
        if self._began is not None and self._open is None:
            self._periods.append(now - self._began)
        if idle:
            self._settle()
        self.steps += 1
        self._began = now

    def sampled(self, step: int, slice_: float) -> None:
        """The step that has begun is sampled."""
        self._settle()
        self._open = Sample(step, slice_)

    def captured(self, count: int) -> None:
        """The sampled step took `count` bytes."""
        if self._open is not None:
            self._open.bytes = count

    def ends(self, now: float) -> None:
        assert self._began is not None
        seconds = now - self._began
        if self._open is None:
            self._plain.append(seconds)
        elif self._open.inside is None:
            self._open.inside = seconds
        else:
            self._open.later.append(seconds)

    def take(self) -> tuple[Sample, float, float] | None:
        """A sampled step whose cost is known by now, that cost, and the time from one plain step to the next."""
        if not self._settled or min(len(self._plain), len(self._periods)) < PLAIN_NEEDED:
            return None
        sample = self._settled.popleft()
        return sample, sample.cost(statistics.median(self._plain)), statistics.median(self._periods)

    def _settle(self) -> None:
        if self._open is not None and self._open.inside is not None:
            self._settled.append(self._open)
        self._open = None


class PacedStep:
    """Any step of a run that keeps a budget, the one that has begun."""

    __slots__ = ("_pace", "_step")

    def __init__(self, pace: PaceMeter, step: AbstractContextManager[None]) -> None:
        self._pace = pace
        self._step = step

    def __enter__(self) -> None:
        self._step.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._step.__exit__(kind, error, trace)
        self._pace.ends(time.perf_counter())
