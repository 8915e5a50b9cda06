"""The smallest relative error that is flagged, by the strength of what the target is compared with.

  paired       the reference's trace: the matched gap, proven but for two replays' own errors
  value        a bare reference value, by the grade of the envelope that decided
  worst case   the same to first order, without a rounding model
  fp64 rule    twice the error of the reference against fp64 (rivals.fp64_rule), the reference being the same program on
               the batch's rows in another order; what it accuses below that is its own noise
  interval     radius of the plain forward interval

A resolution is a claim of the verdict, so that it is tested: the reference value is moved away from the exact result,
once just inside of what the verdict says it would flag, once just beyond it, once far beyond it; and in a pair one
program multiplies its loss by 1 and a little less, or a little more, than the resolution.

A bare value tells nothing of what its program held in 16 bits. Beyond the resolution a verdict may therefore name the
reading under which the value is rounding (parameters that went through bf16), and far beyond it, where the target
computes in bf16, say that the reference may hold more in it.
"""

import copy
import functools
import math
from dataclasses import dataclass

import networks
import torch
from torch import Tensor

import plumbline

INSIDE, BEYOND, FAR = 0.99, 1.01, 11.0
READING = "a reading"  # TYPE_I, by one that the verdict names.
EXPECTED = {INSIDE: {"TYPE_I"}, BEYOND: {"TYPE_II", "INCONCLUSIVE", READING}, FAR: {"TYPE_II"}}
EXPECTED_IN_BF16 = EXPECTED | {FAR: {"TYPE_II", "INCONCLUSIVE"}}


@dataclass(frozen=True)
class Row:
    kind: str
    depth: int
    format: str
    tap: str
    paired: float
    value: float
    grade: str
    worst_case: float
    fp64_rule: float
    interval: float
    holds: bool | None  # Moved references were judged as the resolution says; None: not tried.
    opaque: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.depth:2} {self.format}  {self.tap}"


def relative(difference: Tensor, to: Tensor) -> float:
    return (difference.double().norm() / to.double().norm()).item()


def moved(tap: plumbline.verdict.TapVerdict, distance: float) -> Tensor:
    """A value at a relative distance from the exact result."""
    return torch.tensor((tap.low + tap.high) / 2 * (1 + distance), dtype=torch.float64)


def rows_of(kind: str, depth: int, autocast: bool, server: str) -> list[Row]:
    model, tokens = networks.network(kind, depth), networks.batch()
    wide = copy.deepcopy(model).double()

    def program() -> dict[str, Tensor]:
        return networks.loss_and_gradient(model, tokens, autocast)

    other = {name: tap.clone() for name, tap in networks.loss_and_gradient(model, tokens.flip(0), autocast).items()}
    exact = networks.loss_and_gradient(wide, tokens, False)
    pair = plumbline.compare(program, program, server=server)
    bare = plumbline.compare(program, exact, server=server)
    rows = []
    for name in exact:
        tap, holds = bare.taps[name], None

        def judged(distance: float, name: str = name) -> plumbline.Verdict:
            values = exact | {name: moved(bare.taps[name], distance)}
            return plumbline.compare(program, values, server=server)

        def outcome(distance: float, name: str = name) -> str:
            verdict = judged(distance)
            named = any("what the target computes if" in text for text in (verdict.sentence, *verdict.notes))
            return READING if named and verdict.taps[name].outcome == "TYPE_I" else verdict.taps[name].outcome

        if name == "loss" and tap.math_resolution < 0.1 / FAR:
            # What fails is looked at again, with the envelope's second order: that decides.
            tap = judged(BEYOND * tap.math_resolution).taps[name]
            expected = EXPECTED_IN_BF16 if autocast else EXPECTED
            holds = all(outcome(factor * tap.math_resolution) in outcomes for factor, outcomes in expected.items())
            paired = pair.taps[name].math_resolution

            def scaled(factor: float, paired: float = paired) -> dict[str, Tensor]:
                # In fp64: in fp32 the number would be 1.
                return {"loss": (program()["loss"].double() * (1 + factor * paired)).float()}

            for factor, outcome in ((0.9, "TYPE_I"), (1.1, "TYPE_II")):
                verdict = plumbline.compare(functools.partial(scaled, factor), program, server=server)
                holds = holds and verdict.taps[name].outcome == outcome
        interval = tap.interval_radius / abs(exact[name].item()) if exact[name].numel() == 1 else math.inf
        rows.append(
            Row(
                kind,
                depth,
                "bf16" if autocast else "fp32",
                name,
                pair.taps[name].math_resolution,
                tap.math_resolution,
                tap.grade,
                bare.taps[name].worst_case,
                2 * relative(other[name] - exact[name], exact[name]),
                interval,
                holds,
                pair.coverage.opaque,
            )
        )
    return rows


def table(rows: list[Row]) -> str:
    columns = ("paired", "value", "worst case", "fp64 rule", "interval")
    lines = [f"{'':24}" + "".join(f"{column:>11}" for column in columns) + "  grade        tested"]
    for r in rows:
        figures = (r.paired, r.value, r.worst_case, r.fp64_rule, r.interval)
        tested = "" if r.holds is None else "holds" if r.holds else "WRONG"
        lines.append(f"{r.name:24}" + "".join(f"{x:11.1e}" for x in figures) + f"  {r.grade:12} {tested}".rstrip())
    return "\n".join(lines)
