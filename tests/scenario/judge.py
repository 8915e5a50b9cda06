"""Runs cases through the live path (client, daemon) and through the rival rules."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

import rivals
import torch
from scenario import TYPE_I, TYPE_II, Case, Scenario, value

import plumbline

SEED = 7  # Of the case that is always run.
RANDOM_CASES = 3


@dataclass(frozen=True)
class Result:
    case: Case
    verdict: "plumbline.Verdict"
    assert_close: str
    fp64_rule: str
    intervals: str

    @property
    def correct(self) -> bool:
        return self.verdict.verdict == self.case.label


def base_cases(scenario: Scenario) -> list[Case]:
    return [Case(scenario, variant, scenario.size[0], SEED) for variant in scenario.labels]


def random_cases(scenario: Scenario, draw: random.Random, count: int = RANDOM_CASES) -> list[Case]:
    """Seeds and sizes that no file names."""
    return [
        Case(scenario, variant, draw.randint(scenario.size[0] + 1, scenario.size[1]), draw.randrange(1000, 2**31))
        for variant in scenario.labels
        for _ in range(count)
    ]


def judge(case: Case, server: str) -> Result:
    target, reference = case.programs()
    with case.scenario.device():
        verdict = case.scenario.live(target, reference, server=server, **case.scenario.options)
        # Programs change their own weights, so that the rivals get fresh ones.
        target, reference = case.programs()
        observed, expected = target(), value(reference)
        exact_target, exact_reference = case.programs(torch.float64)
        oracle = (exact_reference if callable(exact_reference) else exact_target)()
    return Result(
        case,
        verdict,
        rivals.assert_close(observed, expected),
        rivals.fp64_rule(observed, expected, oracle),
        rivals.intervals(list(verdict.taps.values()), expected),
    )


def summary(results: Iterable[Result]) -> dict[str, int]:
    results = list(results)
    return {
        "scenarios": len(results),
        "correct": sum(r.correct for r in results),
        "false_type_ii": sum(r.verdict.verdict == TYPE_II and r.case.label == TYPE_I for r in results),
        "missed_type_ii": sum(r.verdict.verdict == TYPE_I and r.case.label == TYPE_II for r in results),
        "inconclusive": sum(r.verdict.verdict not in (TYPE_I, TYPE_II) for r in results),
        "assert_close_correct": sum(r.assert_close == r.case.label for r in results),
        "fp64_rule_correct": sum(r.fp64_rule == r.case.label for r in results),
        "interval_correct": sum(r.intervals == r.case.label for r in results),
    }


def table(results: Iterable[Result]) -> str:
    """One row a scenario's variant: the case that is always run, and how many of all its cases each rule got right."""
    rows = [("scenario", "label", "verdict", "grade", "cause", "margin", "resolution")]
    rows[0] += ("plumbline", "assert_close", "fp64 rule", "intervals")
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.case.name, []).append(result)
    for name, group in groups.items():
        v, label = group[0].verdict, group[0].case.label

        def right(says: list[str], label: str = label) -> str:
            return f"{sum(s == label for s in says)}/{len(says)}"

        rows.append(
            (name, label, v.verdict, v.grade, v.cause, f"{v.margin:.2g}", f"{v.math_resolution:.1e}")
            + (right([r.verdict.verdict for r in group]), right([r.assert_close for r in group]))
            + (right([r.fp64_rule for r in group]), right([r.intervals for r in group]))
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    bounded = [name for name in groups if name.startswith("A A2")]
    if bounded:
        lines += ["", "Bounds of A2's outputs, and the bare reference values:"]
    for name in bounded:
        for tap in groups[name][0].verdict.taps.values():
            bounds = f"[{tap.low:.9g}, {tap.high:.9g}]"
            values = f"observed {tap.observed:.9g}, reference {tap.reference:.9g}"
            lines.append(f"  {name:22} {tap.name:5} {bounds:30} {values}")
    return "\n".join(lines)
