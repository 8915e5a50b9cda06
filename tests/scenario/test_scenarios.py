"""Every scenario, with its own seed and size and with random ones, must get its label, its cause and its place."""

import pytest
from judge import Result, cases, judge, judge_values
from scenario import TYPE_I, TYPE_II, Case, scenarios, value

# Draws of which a verdict was once wrong: scenario, variant, size, seed.
KEPT = {
    ("A6 half weights", "never_copied_back", 12, 1475282320),
    ("A10 fixed point", "nearest", 11, 1193084323),
}
# Draws of which bare values once hid a bug above the resolution that was stated.
HIDDEN = ("E clipped norm", "no_eps", 20, 1781045131)
CASES = [case for s in scenarios() for case in cases(s, count=1)]
CASES += [
    Case(s, variant, size, seed) for s in scenarios() for name, variant, size, seed in sorted(KEPT) if name == s.name
]


def complaint(result: Result) -> str:
    """What is wrong with a verdict, in a few words; empty if nothing is."""
    case, verdict = result.case, result.verdict
    if not result.correct:
        return f"expected {case.label}"
    if not result.cause_correct:
        return f"expected cause {' or '.join(case.causes)}"
    if case.variant in case.scenario.suspect and not result.located:
        return f"expected a place that matches {case.scenario.suspect[case.variant]!r}"
    if case.label == TYPE_I and verdict.coverage.opaque:
        return f"expected no opaque operation, found {list(verdict.coverage.opaque_names)}"
    return ""


def named(case: Case) -> str:
    return f"{case.name} size {case.size} seed {case.seed}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_label(case: Case, server: str) -> None:
    result = judge(case, server)
    wrong = complaint(result)
    assert not wrong, f"{wrong}\n{result.verdict.explain()}"
    if case.scenario.says is not None:
        case.scenario.says(case.variant, result.verdict)


def test_a_bug_above_the_stated_resolution_is_not_hidden(server: str) -> None:
    name, variant, size, seed = HIDDEN
    case = Case(next(s for s in scenarios() if name == f"{s.family} {s.name}"), variant, size, seed)
    assert case.label == TYPE_II
    assert not judge_values(case, value(case.programs()[1]), server).hides(case.label)


def test_kept_draws_are_all_there() -> None:
    assert {(case.scenario.name, case.variant, case.size, case.seed) for case in CASES} >= KEPT


def test_families_are_as_many_as_promised() -> None:
    counted = [s.family for s in scenarios()]
    for family, least in (("A", 8), ("B", 10), ("C", 10), ("D", 6), ("E", 24)):
        assert counted.count(family) >= least, family
