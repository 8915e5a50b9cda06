"""Runs cases through the live path (client, daemon), once more with the reference's bare values, and through the rival
rules."""

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
class Values:
    """What is said where the reference gives no more than its tensors."""

    verdict: "plumbline.Verdict"
    gaps: dict[str, float]  # By tap: how far both programs are apart in fp64, relative to the reference's norm.

    def hides(self, label: str) -> bool:
        """Whether a bug above the resolution that the verdict states is said to be rounding."""
        if self.verdict.verdict != TYPE_I or label != TYPE_II:
            return False
        stated = {name: tap.math_resolution for name, tap in self.verdict.taps.items()}
        resolutions = {name: stated.get(name, self.verdict.math_resolution) for name in self.gaps}
        return any(not gap <= resolutions[name] for name, gap in self.gaps.items())


@dataclass(frozen=True)
class Result:
    case: Case
    verdict: "plumbline.Verdict"
    rivals: dict[str, str] = field(default_factory=dict)  # By rule: what it says of the same tensors.
    values: Values | None = None

    @property
    def correct(self) -> bool:
        return self.verdict.verdict == self.case.label

    @property
    def cause_correct(self) -> bool:
        return self.correct and self.verdict.cause in self.case.causes

    @property
    def values_correct(self) -> bool:
        return self.values is not None and self.values.verdict.verdict == self.case.label

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
        values = judge_values(case, expected, server)
        exact_target, exact_reference = case.programs(torch.float64)
        oracle = (exact_reference if callable(exact_reference) else exact_target)()
        says = {
            "assert_close": rivals.assert_close(observed, expected),
            "fp64_rule": rivals.fp64_rule(observed, expected, oracle),
            "interval": rivals.intervals(list(result.verdict.taps.values()), expected),
            "perturbation": rivals.perturbation(case, observed, expected),
        }
    return Result(case, result.verdict, says, values)


def judge_values(case: Case, expected: dict[str, torch.Tensor], server: str) -> Values:
    """The target against the reference's bare values, on the device of the scenario, as if no more were known."""
    target, reference = case.programs()
    random_state = torch.get_rng_state()
    value(reference)
    torch.set_rng_state(random_state)
    verdict = plumbline.compare(target, expected, server=server, **case.scenario.options)
    return Values(verdict, gaps(case))


def gaps(case: Case) -> dict[str, float]:
    """By tap that both programs give: how far their mathematics is apart, in fp64."""
    target, reference = case.programs(torch.float64)
    random_state = torch.get_rng_state()
    ours = target()
    torch.set_rng_state(random_state)
    found = {}
    for name, theirs in value(reference).items():
        if name in ours and ours[name].shape == theirs.shape:
            a, b = ours[name].double(), theirs.double()
            apart = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, a - b).norm()
            found[name] = (apart / b.where(b.isfinite(), 0.0).norm().clamp_min(1e-300)).item() if apart != 0 else 0.0
    return found


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
    valued = [r for r in results if r.values is not None]
    if valued:
        says = [(r.case.label, r.values.verdict.verdict) for r in valued]
        figures["values_correct"] = sum(r.values_correct for r in valued)
        figures["values_false_type_i"] = sum(r.values.hides(r.case.label) for r in valued)
        figures["values_false_type_ii"] = says.count((TYPE_I, TYPE_II))
        figures["values_inconclusive"] = sum(verdict not in (TYPE_I, TYPE_II) for _, verdict in says)
    for rule in RIVALS:
        figures[f"{rule}_correct"] = sum(r.rivals[rule] == r.case.label for r in results)
    return figures


def table(results: Iterable[Result]) -> str:
    """One row a scenario's variant: the case that is always run, and how many of all its cases each rule got right."""
    rows = [("scenario", "label", "verdict", "grade", "cause", "surprise", "resolution", "plumbline", "cause right")]
    rows[0] += ("located", "values", "assert_close", "fp64 rule", "intervals", "perturbation")
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
            + (share(r.values_correct for r in group),)
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
