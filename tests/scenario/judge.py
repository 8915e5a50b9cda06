"""Runs cases through the live path (client, daemon) and through the rival rules."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import rivals
import torch
from scenario import TYPE_I, TYPE_II, Case, Scenario, value

import plumbline

SEED = 7  # Of the case that is always run.
RANDOM_CASES = 3  # Of the report; the test takes the first of them.
DRAW_SEED = 16  # Of the random cases, where no other is asked for.
RIVALS = ("assert_close", "fp64_rule", "interval", "perturbation")


@dataclass(frozen=True)
class Result:
    case: Case
    verdict: "plumbline.Verdict"
    rivals: dict[str, str] = field(default_factory=dict)  # By rule: what it says of the same tensors.

    @property
    def correct(self) -> bool:
        return self.verdict.verdict == self.case.label

    @property
    def cause_correct(self) -> bool:
        return self.correct and self.verdict.cause in self.case.causes

    @property
    def located(self) -> bool:
        return self.correct and self.case.locates(self.verdict)


def base_cases(scenario: Scenario) -> list[Case]:
    return [Case(scenario, variant, scenario.size[0], SEED) for variant in scenario.labels]


def cases(scenario: Scenario, count: int = RANDOM_CASES, seed: int = DRAW_SEED) -> list[Case]:
    """Each variant at its own size and seed, and at `count` random ones, which hang on its name and `seed` alone."""
    result = base_cases(scenario)
    low, high = scenario.size[0] + 1, scenario.size[1]
    for variant in scenario.labels:
        draw = random.Random(f"{seed} {scenario.name} {variant}")
        result += [Case(scenario, variant, draw.randint(low, high), draw.randrange(1000, 2**31)) for _ in range(count)]
    return result


def judge(case: Case, server: str) -> Result:
    target, reference = case.programs()
    with case.scenario.device():
        return Result(case, case.scenario.live(target, reference, server=server, **case.scenario.options))


def judge_with_rivals(case: Case, server: str) -> Result:
    result = judge(case, server)
    with case.scenario.device():
        target, reference = case.programs()  # Programs change their own weights, so that each rule gets fresh ones.
        random_state = torch.get_rng_state()
        observed = target()
        torch.set_rng_state(random_state)  # As plumbline.compare does.
        expected = value(reference)
        exact_target, exact_reference = case.programs(torch.float64)
        oracle = (exact_reference if callable(exact_reference) else exact_target)()
        says = {
            "assert_close": rivals.assert_close(observed, expected),
            "fp64_rule": rivals.fp64_rule(observed, expected, oracle),
            "interval": rivals.intervals(list(result.verdict.taps.values()), expected),
            "perturbation": rivals.perturbation(case, observed, expected),
        }
    return Result(case, result.verdict, says)


def summary(results: Iterable[Result]) -> dict[str, int]:
    results = list(results)
    bugs = [r for r in results if r.case.label == TYPE_II]
    figures = {
        "scenarios": len(results),
        "correct": sum(r.correct for r in results),
        "false_type_ii": sum(r.verdict.verdict == TYPE_II and r.case.label == TYPE_I for r in results),
        "missed_type_ii": sum(r.verdict.verdict == TYPE_I and r.case.label == TYPE_II for r in results),
        "inconclusive": sum(r.verdict.verdict not in (TYPE_I, TYPE_II) for r in results),
        "cause_correct": sum(r.cause_correct for r in results),
        "located": sum(r.located for r in bugs),
        "bugs": len(bugs),
    }
    for rule in RIVALS:
        figures[f"{rule}_correct"] = sum(r.rivals[rule] == r.case.label for r in results)
    return figures


def table(results: Iterable[Result]) -> str:
    """One row a scenario's variant: the case that is always run, and how many of all its cases each rule got right."""
    rows = [("scenario", "label", "verdict", "grade", "cause", "surprise", "resolution", "plumbline", "cause right")]
    rows[0] += ("located", "assert_close", "fp64 rule", "intervals", "perturbation")
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.case.name, []).append(result)
    for name, group in groups.items():
        v, label = group[0].verdict, group[0].case.label

        def share(holds: Iterable[bool], of: int = len(group)) -> str:
            return f"{sum(holds)}/{of}"

        rows.append(
            (name, label, v.verdict, v.grade, v.cause, f"{v.surprise:.2g}", f"{v.math_resolution:.1e}")
            + (share(r.correct for r in group), share(r.cause_correct for r in group))
            + (share(r.located for r in group) if label == TYPE_II else "",)
            + tuple(share(r.rivals[rule] == r.case.label for r in group) for rule in RIVALS)
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
