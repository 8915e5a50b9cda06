"""What auditing costs a training, measured by the training's own steps."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PLAIN_NEEDED = 5  # On each side of a sampled step: machines drift by more, from one minute to the next, than it costs.
PLAIN_KEPT = 2 * PLAIN_NEEDED
LATER_KEPT = 248
UNUSUAL = 2.0  # Beyond twice the median a step was held up by something else (a checkpoint, an evaluation).


class Instant(NamedTuple):
    """A moment of the training thread."""

    seconds: float
    processor: float = 0.0  # Seconds that the thread has run.

    @staticmethod
    def now() -> Instant:
        return Instant(time.perf_counter(), time.thread_time())


class OwnThreads:
    """Processor time of threads that are ours alone. Thread-safe."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._counted = threading.local()

    def count(self) -> None:
        """Adds what the calling thread has run since it was last counted."""
        now = time.thread_time()
        with self._lock:
            self.seconds += now - getattr(self._counted, "seconds", 0.0)
        self._counted.seconds = now


@dataclass
class Sample:
    """A sampled step and those that ran until it was answered."""

    step: int
    slice: float
    bytes: int = 0
    inside: Instant | None = None  # What the step took,
    later: deque[float] = field(default_factory=lambda: deque(maxlen=LATER_KEPT))  # and those behind it, in seconds.
    own: float = 0.0  # Of our threads: their time when it began, then what they ran.

    def seconds(self, plain: float) -> float:
        """Beyond those of steps without audit, each of which takes `plain`."""
        later = sum(min(seconds, UNUSUAL * plain) - plain for seconds in self.later)
        return later + (self.inside.seconds - plain if self.inside is not None else 0.0)

    def processor(self, plain: float) -> float:
        """Likewise of processors: the step's thread, and our own."""
        return self.own + (max(0.0, self.inside.processor - plain) if self.inside is not None else 0.0)


class PaceMeter:
    """Told of each step's begin and end: what lies between two steps is not ours, however long it takes.

    Steps without audit are those that ran while no sampled step was on its way. A sampled step costs what it and those
    behind it, until its answer, took beyond the median of such steps on both sides of it. What else runs on the machine
    moves that either way, so it counts over all sampled steps, and together they cost no less than the processor time
    that they took. What watching costs the other steps is charged with them.
    """

    def __init__(self, own: OwnThreads | None = None) -> None:
        self.steps = 0
        self.since = 0  # Of these, those that have begun after the last sampled one.
        self._own = own or OwnThreads()
        self._plain: deque[Instant] = deque(maxlen=PLAIN_KEPT)
        self._periods: deque[float] = deque(maxlen=PLAIN_KEPT)  # From one begin to the next.
        self._began: Instant | None = None
        self._open: Sample | None = None
        self._settled: deque[Sample] = deque(maxlen=8)
        self._followed = 0  # Plain steps since the last answer.
        self._watching = self._seconds = self._processor = self._charged = 0.0

    def begins(self, now: Instant, idle: bool) -> None:
        """`idle`: every sampled step was answered."""
        if self._began is not None and self._open is None:
            self._periods.append(now.seconds - self._began.seconds)
        if idle:
            self._settle()
        self.steps += 1
        self.since += 1
        self._began = now

    def sampled(self, step: int, slice_: float) -> None:
        """The step that has begun is sampled."""
        self._settle()
        self._followed = PLAIN_NEEDED  # No more of them will follow those before it.
        self.since = 0
        self._open = Sample(step, slice_, own=self._own.seconds)

    def captured(self, count: int) -> None:
        """The sampled step took `count` bytes."""
        if self._open is not None:
            self._open.bytes = count

    def entered(self, seconds: float) -> None:
        """The step's own work begins, after ours."""
        assert self._began is not None
        if self._open is None or self._open.inside is not None:
            self._watching += seconds - self._began.seconds

    def ends(self, now: Instant) -> None:
        assert self._began is not None
        took = Instant(now.seconds - self._began.seconds, now.processor - self._began.processor)
        if self._open is None:
            self._plain.append(took)
            self._followed += 1
        elif self._open.inside is None:
            self._open.inside = took
        else:
            self._open.later.append(took.seconds)

    def take(self) -> tuple[Sample, float, float] | None:
        """A sampled step whose cost is known by now, that cost, and the time from one plain step to the next."""
        known = min(len(self._plain), len(self._periods), self._followed) >= PLAIN_NEEDED
        if not self._settled or not known:
            return None
        sample = self._settled.popleft()
        watching, self._watching = self._watching, 0.0
        self._seconds += watching + sample.seconds(statistics.median(step.seconds for step in self._plain))
        self._processor += watching + sample.processor(statistics.median(step.processor for step in self._plain))
        cost = max(0.0, max(self._seconds, self._processor) - self._charged)
        self._charged += cost
        return sample, cost, statistics.median(self._periods)

    def _settle(self) -> None:
        if self._open is not None and self._open.inside is not None:
            self._open.own = self._own.seconds - self._open.own
            self._settled.append(self._open)
            self._followed = 0
        self._open = None


class PacedStep:
    """Any step of a run that keeps a budget, the one that has begun."""

    __slots__ = ("_pace", "_step")

    def __init__(self, pace: PaceMeter, step: AbstractContextManager[None]) -> None:
        self._pace = pace
        self._step = step

    def __enter__(self) -> None:
        self._step.__enter__()
        self._pace.entered(time.perf_counter())

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._step.__exit__(kind, error, trace)
        self._pace.ends(Instant.now())
