"""How numbers of a program are read: as real numbers, or as the kernels round them when they enter an operation."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flint import arb, ctx

BITS = 200  # About 60 decimal digits.
ctx.prec = BITS  # Before any constant is made.
TIE = arb("1e-40")  # Two numbers that lie closer than this, in units of the larger, are one number.
DYADIC_BITS_MAX = 8  # A constant with no more significant bits than this has no freedom.
HALF_ULP = arb(2) ** -24  # Of fp32, relative to the power of two below.


@dataclass
class Reading:
    """One way to read a program. `rounded` rounds scalars to fp32, as kernels do. `nudged` maps a constant, by its fp32
    value, to the factor by which this evaluation moves it; `seen` collects the constants that entered an operation.
    What a program's preparation left is rounded too; `given_moved` moves it, and what came from numpy, by half a
    unit in the last place, up or down as this seed says."""

    rounded: bool = False
    given_moved: int | None = None
    nudged: dict[float, arb] = field(default_factory=dict)
    seen: set[float] = field(default_factory=set)
    ties: int = 0


_current = Reading()


def current() -> Reading:
    return _current


@contextlib.contextmanager
def reading(given: Reading) -> Iterator[Reading]:
    global _current
    before, _current = _current, given
    try:
        yield given
    finally:
        _current = before


def is_free(value: float) -> bool:
    """Whether a constant of this fp32 value may be a rounding of another number."""
    if value == 0 or not math.isfinite(value):
        return False
    mantissa, _ = math.frexp(value)
    return mantissa * 2**DYADIC_BITS_MAX != int(mantissa * 2**DYADIC_BITS_MAX)


def real(text: str) -> arb:
    """A literal of the program, as the real number that its digits say."""
    return arb(text)


def exact(number: Any) -> arb:
    """A Python number, or the digits of one, as a ball; one that already is a ball stays."""
    return number if isinstance(number, arb) else arb(number)


def scalar(number: Any) -> arb:
    """A number that enters an operation on tensors of a float format."""
    value = exact(number)
    nearest = float(np.float32(float(value.mid())))
    if not is_free(nearest):
        return arb(nearest) if _current.rounded else value
    _current.seen.add(nearest)
    if _current.rounded:
        value = arb(nearest)
    return value * _current.nudged[nearest] if nearest in _current.nudged else value


def tied(a: arb, b: arb) -> bool:
    """Whether two numbers are one, as far as 200 bits can tell."""
    apart = a - b
    if apart.is_zero():
        return True
    if not a.is_finite() or not b.is_finite():
        return False
    if abs(apart) < TIE * (abs(a) + abs(b)) or apart.contains(0):
        _current.ties += 1
        return True
    return False


def less(a: arb, b: arb) -> bool:
    if not a.is_finite() or not b.is_finite():
        return float(a.mid()) < float(b.mid())
    return not tied(a, b) and bool(a < b)
