"""The bugs between and within steps of tests/steps, as the report counts them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "steps"))

import bugs

SMALL = {"momentum_lost_at_a_restart", "packed_texts_see_each_other", "sharpness_radius_squared"}


@dataclass
class Outcome:
    name: str
    bug: Any  # The verdict of the first step that the bug harms.
    located: bool
    accused: int  # Steps before the bug's, and of the twin without it.
    twin_open: list[Any]  # Steps of the twin that are not Type I.

    @property
    def found(self) -> bool:
        return self.bug.verdict == "TYPE_II"

    def lines(self) -> list[str]:
        name = f"  {self.name:40} "
        lines = [f"{name}its twin, step {v.step}: {v.verdict}: {v.sentence[:160]}" for v in self.twin_open]
        if not self.found:
            lines.append(f"{name}the bug: {self.bug.verdict}: {self.bug.sentence[:160]}")
        elif not self.located:
            lines.append(f"{name}the bug is placed at {self.bug.suspect}")
        return lines


def judged(small: bool, seed: int, server: str) -> list[Outcome]:
    return [_judged(bug, seed, server) for bug in bugs.BUGS if not small or bug.name in SMALL]


def _judged(bug: Any, seed: int, server: str) -> Outcome:
    harmed = bugs.judged(bug, bugs.BUG, server, seed)
    twin = bugs.judged(bug, bugs.FIXED, server, seed)
    first = harmed[bug.since]
    accused = sum(verdict.verdict == "TYPE_II" for verdict in (*harmed[: bug.since], *twin))
    located = first.verdict == "TYPE_II" and bug.placed(first)
    return Outcome(bug.name, first, located, accused, [verdict for verdict in twin if verdict.verdict != "TYPE_I"])
