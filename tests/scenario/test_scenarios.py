"""Every scenario, with its own seed and size and with random ones, must get its label."""

import random

import pytest
from judge import base_cases, judge, random_cases
from scenario import TYPE_II, Case, scenarios

# Printed in the tests' names, so that a failing case can be run again.
DRAW_SEED = random.SystemRandom().randrange(2**31)
CASES = [
    case for s in scenarios() for case in (*base_cases(s), *random_cases(s, random.Random(f"{DRAW_SEED}{s.name}")))
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} size {case.size} seed {case.seed}")
def test_label(case: Case, server: str) -> None:
    result = judge(case, server)
    assert result.correct, f"expected {case.label}\n{result.verdict.explain()}"
    if case.label == TYPE_II:
        assert result.verdict.cause in {"MATHEMATICS", "LEAF_MISMATCH", "RANGE", "EXECUTION", "INVARIANT"}
        if callable(case.programs()[1]):  # Bare values say that something is wrong, not where.
            assert result.verdict.suspect is not None, "a TYPE_II verdict must say where to look"
    else:
        assert result.verdict.coverage.opaque == 0, result.verdict.coverage
    if case.scenario.says is not None:
        case.scenario.says(case.variant, result.verdict)


def test_families_are_as_many_as_promised() -> None:
    families = [s.family for s in scenarios()]
    assert (families.count("A") >= 8, families.count("B") >= 10, families.count("C") >= 10) == (True, True, True)
