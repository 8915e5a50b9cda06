"""What auditing costs a training, measured by the training's own steps: the times between entries to step()."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

PLAIN_KEPT = 31
PLAIN_NEEDED = 5
UNUSUAL = 2.0  # Beyond twice the median a step was held up by something else (a checkpoint, an evaluation).


@dataclass
class Sample:
    """A sampled step and those that ran until it was answered."""

    step: int
    bytes: int = 0
    slice: float = 1.0
    inside: float = 0.0  # Seconds from its entry to its exit,
    first: float | None = None  # and to the next step's entry.
    later: list[float] | None = None  # Of the steps behind it.

    def cost(self, plain: float) -> float:
        later = sum(min(seconds, UNUSUAL * plain) - plain for seconds in self.later or ())
        first = min(self.first or plain, self.inside + plain)  # What lies between two steps is not ours.
        return max(0.0, first - plain + later)


class PaceMeter:
    """Told of each entry to step(). A step without audit takes the median of the last ones that ran while no sampled
    step was on its way; a sampled step costs what it and those behind it took beyond that, until its answer."""

    def __init__(self) -> None:
        self.steps = 0
        self._plain: deque[float] = deque(maxlen=PLAIN_KEPT)
        self._before: float | None = None  # Time of the last entry.
        self._open: Sample | None = None
        self._settled: deque[Sample] = deque(maxlen=8)

    def enters(self, now: float, idle: bool) -> None:
        """A step begins; `idle`: every sampled step was answered."""
        if self._before is not None:
            seconds = now - self._before
            sample = self._open
            if sample is None:
                self._plain.append(seconds)
            elif sample.first is None:
                sample.first = seconds
            else:
                sample.later = [*(sample.later or ()), seconds][-PLAIN_KEPT * 8 :]
            if sample is not None and idle:
                self._settle()
        self.steps += 1
        self._before = now

    def sampled(self, step: int, slice_: float) -> None:
        """The step that has begun is sampled."""
        if self._open is not None:
            self._settle()
        self._open = Sample(step, slice=slice_)

    def left(self, now: float, count: int) -> None:
        """The sampled step ends, with `count` bytes captured."""
        if self._open is not None and self._before is not None:
            self._open.inside, self._open.bytes = now - self._before, count

    def take(self) -> tuple[Sample, float] | None:
        """A sampled step whose cost is known by now, and the seconds of a step without audit."""
        if not self._settled or len(self._plain) < PLAIN_NEEDED:
            return None
        return self._settled.popleft(), statistics.median(self._plain)

    def _settle(self) -> None:
        if self._open is not None and self._open.first is not None:
            self._settled.append(self._open)
        self._open = None
