"""Each bug between or within steps is Type II, by its cause and at its place, from the step on that it harms; the run
without it is Type I in all its steps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bugs import BUG, BUGS, FIXED, STEPS, Bug, judged

from plumbline import daemon


@pytest.fixture(scope="module")
def server():
    with daemon.private() as address:
        yield address


def test_there_are_as_many_as_were_promised() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 40


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_found_at_its_place(server: str, bug: Bug) -> None:
    verdicts = judged(bug, BUG, server)
    said = [verdict.verdict for verdict in verdicts]
    first = verdicts[bug.since]
    assert said[: bug.since] == ["TYPE_I"] * bug.since, verdicts[said.index("TYPE_II")].explain()
    assert first.verdict == "TYPE_II", first.explain()
    assert first.cause == bug.cause, first.explain()
    assert bug.placed(first), first.explain()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_its_fixed_twin_is_healthy(server: str, bug: Bug) -> None:
    verdicts = judged(bug, FIXED, server)
    wrong = [verdict for verdict in verdicts if verdict.verdict != "TYPE_I"]
    assert not wrong and len(verdicts) == STEPS, wrong[0].explain()
