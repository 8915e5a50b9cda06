"""What the verdict on a pair must be, from evaluating both programs in 200 bits."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from flint import arb

from .exact.reading import HALF_ULP, Reading
from .exact.tensor import Tensor, is_float
from .program import exact_taps, text
from .spec import Applied, Pair, Spec

TYPE_I, TYPE_II, BELOW, REFUTED = "TYPE_I", "TYPE_II", "BELOW", "REFUTED"

EQUAL = 1e-30  # Relative to a tap's largest element: two evaluations that lie closer are one number.
RESOLVED = 1e-10  # A change that is smaller than this share of a tap need not be found.
FREEDOM_FACTOR = 8.0  # Between an estimate of what rounded constants may do and what must be found.
CERTAIN = 1e-4  # A change of this share of a tap is more than any constant's rounding makes.
SINGLE_MAX = 4  # So many constants are moved one at a time; more are moved together.

Exact = dict[str, Tensor]


@dataclass(frozen=True)
class Label:
    """`expected` is TYPE_I, TYPE_II, BELOW (rounding of constants could hide the change: anything but a proof of
    equality) or REFUTED (a rewrite that is none: a defect of the generator). `gap` is the change relative to the tap,
    where it is largest, and `freedom` what rounded constants could do. `structure` names a tap that one side lacks."""

    expected: str
    gap: float
    freedom: float = 0.0
    structure: str = ""


def numbers(taps: Exact) -> dict[str, list]:
    out = {}
    for name, tap in taps.items():
        flat = tap.data.reshape(-1)
        out[name] = list(flat) if is_float(tap.data) else [arb(int(v)) for v in flat]
    return out


def differences(a: Exact, b: Exact) -> dict[str, tuple[list[float], float]]:
    """By tap that both have: how far apart elements are, and the tap's largest magnitude."""
    out = {}
    first, second = numbers(a), numbers(b)
    for name in first.keys() & second.keys():
        if len(first[name]) != len(second[name]):  # Of different sizes: nothing of it is the same.
            out[name] = ([float("inf")], 1.0)
            continue
        apart = [_apart(x, y) for x, y in zip(first[name], second[name], strict=True)]
        scale = max((abs(float(v.mid())) for v in (*first[name], *second[name]) if v.is_finite()), default=0.0)
        out[name] = (apart, scale)
    return out


def _apart(x: arb, y: arb) -> float:
    if x.is_finite() and y.is_finite():
        return abs(float((x - y).mid()))
    return 0.0 if str(x) == str(y) else float("inf")


def largest_gap(a: Exact, b: Exact) -> float:
    """The largest relative difference of a tap, zero where all are equal."""
    worst = 0.0
    for apart, scale in differences(a, b).values():
        gap = max(apart, default=0.0)
        if gap > EQUAL * scale + 1e-45:
            worst = max(worst, gap / scale if scale else float("inf"))
    return worst


def missing(a: Exact, b: Exact) -> str:
    """A tap that one side lacks while the other's is not zero."""
    for one, other in ((a, b), (b, a)):
        for name, values in numbers(one).items():
            if name not in other and any(abs(float(v.mid())) > 0 for v in values):
                return name
    return ""


def evaluate(spec: Spec, edits: tuple[Applied, ...], how: Reading) -> Exact:
    return exact_taps(spec, edits, how)


def are_equal(spec: Spec, one: tuple[Applied, ...], other: tuple[Applied, ...]) -> bool:
    """Whether two programs are one function: with constants as written, as kernels round them, or within what the
    rounding of constants that only one of them has can do."""
    for rounded in (False, True):
        hows = (Reading(rounded), Reading(rounded))
        a, b = (evaluate(spec, edits, how) for edits, how in zip((one, other), hows, strict=True))
        if a.keys() != b.keys():
            return False
        if largest_gap(a, b) == 0:
            return True
    freedom = _freedom(Pair(spec, one, other), a, b, hows[0].seen, hows[1].seen)
    return not any(
        e > f + EQUAL * scale
        for name, (apart, scale) in differences(a, b).items()
        for e, f in zip(apart, freedom[name], strict=True)
    )


def label_of(pair: Pair) -> Label:
    if pair.mutations:
        return _label_of_mutation(pair)
    target, reference = _both(pair, Reading(), Reading())
    gap = largest_gap(target, reference)
    if target.keys() == reference.keys() and (gap == 0 or _chain_holds(pair)):
        return Label(TYPE_I, gap)
    return Label(REFUTED, gap)


def _both(pair: Pair, how_t: Reading, how_r: Reading) -> tuple[Exact, Exact]:
    return evaluate(pair.spec, pair.target, how_t), evaluate(pair.spec, pair.reference, how_r)


def _label_of_mutation(pair: Pair) -> Label:
    how_t, how_r = Reading(rounded=True), Reading(rounded=True)
    target, reference = _both(pair, how_t, how_r)
    gap, lacking = largest_gap(target, reference), missing(target, reference)
    if lacking:
        return Label(TYPE_II, float("inf"), structure=lacking)
    if gap == 0:
        return Label(TYPE_I, 0.0)
    if gap > CERTAIN:
        return Label(TYPE_II, gap)
    if largest_gap(*_both(pair, Reading(), Reading())) == 0:
        return Label(TYPE_I, 0.0)
    if _undone_by_rounding(pair, target, reference):
        return label_of(_without_mutations(pair))
    freedom = _freedom(pair, target, reference, how_t.seen, how_r.seen)
    worst_freedom, found = 0.0, False
    for name, (apart, scale) in differences(target, reference).items():
        usual = max(freedom[name], default=0.0)  # An element's own may be small by chance.
        for e, f in zip(apart, freedom[name], strict=True):
            found |= e > FREEDOM_FACTOR * f + usual + RESOLVED * scale
            worst_freedom = max(worst_freedom, f / scale if scale else 0.0)
    return Label(TYPE_II if found else BELOW, gap, worst_freedom)


def _without_mutations(pair: Pair) -> Pair:
    target, reference = (tuple(a for a in side if not a.registered.mutates) for side in (pair.target, pair.reference))
    return Pair(pair.spec, target, reference)


def _undone_by_rounding(pair: Pair, target: Exact, reference: Exact) -> bool:
    """Whether the mutations change nothing once constants are rounded: 0.99999998 is 1 in fp32. What then lies between
    the programs is their rewrites' constants."""
    unchanged = _both(_without_mutations(pair), Reading(rounded=True), Reading(rounded=True))
    return all(
        a.keys() == b.keys() and largest_gap(a, b) == 0 for a, b in zip((target, reference), unchanged, strict=True)
    )


def _chain_holds(pair: Pair) -> bool:
    """Each edit alone leaves the function as it is."""
    for edits in (pair.target, pair.reference):
        for n in range(len(edits)):
            if not are_equal(pair.spec, edits[:n], edits[: n + 1]):
                return False
    return True


def _freedom(pair: Pair, target: Exact, reference: Exact, seen_t: set, seen_r: set) -> dict[str, list[float]]:
    """By tap and element: how far constants that only one program has could move it, each by half a unit in the last
    place of fp32, and what the rounding of tables that were prepared, or came from numpy, did."""
    out = {name: [0.0] * tap.data.size for name, tap in target.items()}
    sides = ((pair.target, target, seen_t - seen_r), (pair.reference, reference, seen_r - seen_t))
    for edits, base, alone in sides:
        for factors in _nudges(sorted(alone), pair.spec.seed):
            moved = evaluate(pair.spec, edits, Reading(rounded=True, nudged=factors))
            _add(out, moved, base)
        source = text(pair.spec, edits).source
        if "def prepare" in source or "from_numpy" in source:
            for seed in range(SINGLE_MAX):
                _add(out, evaluate(pair.spec, edits, Reading(rounded=True, given_moved=seed)), base)
    return out


def _add(freedom: dict[str, list[float]], moved: Exact, base: Exact) -> None:
    for name, (apart, _) in differences(moved, base).items():
        freedom[name] = [f + e for f, e in zip(freedom[name], apart, strict=True)]


def _nudges(values: list[float], seed: int) -> list[dict[float, arb]]:
    if len(values) <= SINGLE_MAX:
        return [{v: 1 + HALF_ULP} for v in values]
    draw = random.Random(seed)
    return [{v: 1 + draw.choice((-1, 1)) * HALF_ULP for v in values} for _ in range(SINGLE_MAX)]


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(_same(a[n], b[n]) for n in a)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(*(x.detach().reshape(-1).view(torch.uint8) for x in (a, b)))
