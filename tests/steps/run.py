"""Training runs with one bug, and the same runs without it: what each is, and how it is judged.

A bug is a function that builds a training run in one of three forms: `BUG`, `FIXED`, and `REFERENCE`, which is the run
that the other two are paired with, step by step, and which does the same as `FIXED` in other words. Bugs between steps
need no reference: what they change is what no step may have changed.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import plumbline

BUG, FIXED, REFERENCE = "bug", "fixed", "reference"
STEPS = 5
EVENT = 3  # After this step, the fourth, something happens between steps: what is watched was left alone thrice.


@dataclass
class Training:
    model: nn.Module
    optimizer: Any
    step: Callable[[], object]
    state: dict[str, Any] = field(default_factory=dict)  # What its author names to the audit.
    event: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Bug:
    """`place` is a regular expression that the suspect must match: operation, text of the line and module, joined by
    blanks; of what changed between steps, the tensor's name. `since` is the first step that the bug harms."""

    name: str
    build: Callable[[str], Training]
    place: str
    cause: str
    paired: bool
    since: int

    def placed(self, verdict: plumbline.Verdict) -> bool:
        suspect = verdict.suspect
        if suspect is None:
            return False
        file, _, line = suspect.source.partition(":")
        path = next((code for code in self._files() if code.endswith(file)), file)
        text = linecache.getline(path, int(line)).strip() if line else ""
        return re.search(self.place, f"{suspect.op} {text} {suspect.module}") is not None

    def _files(self) -> list[str]:
        return [self.build.__code__.co_filename, __file__]


BUGS: list[Bug] = []


def between(place: str) -> Callable[[Callable[[str], Training]], Callable[[str], Training]]:
    """Registers a bug that happens between two steps: its run is judged by itself."""
    return _registered(place, "INVARIANT", False, EVENT + 1)


def within(
    place: str, cause: str = "MATHEMATICS", since: int = 0
) -> Callable[[Callable[[str], Training]], Callable[[str], Training]]:
    """Registers a bug within steps: its run is paired with the reference's."""
    return _registered(place, cause, True, since)


def _registered(place: str, cause: str, paired: bool, since: int) -> Callable:
    def register(build: Callable[[str], Training]) -> Callable[[str], Training]:
        BUGS.append(Bug(build.__name__, build, place, cause, paired, since))
        return build

    return register


def judged(bug: Bug, form: str, server: str, seed: int = 0) -> list[plumbline.Verdict]:
    """The verdicts of all steps of a run. `seed`: of its weights, and with 1 more of its data."""
    job = f"{bug.name}-{form}"
    if not bug.paired:
        return _watched(bug, form, server, job, seed)
    _watched(bug, REFERENCE, server, job, seed, keep_trace=True)
    return _watched(bug, form, server, job, seed, reference=REFERENCE)


def _watched(bug: Bug, form: str, server: str, job: str, seed: int, **options: Any) -> list[plumbline.Verdict]:
    torch.manual_seed(seed)
    training = bug.build(form)
    torch.manual_seed(seed + 1)
    options |= {"job": job, "run": form, "every": 1, "on_type_ii": "ignore"}
    with plumbline.watch(training.model, training.optimizer, server, **options) as audit:
        for name, holder in training.state.items():
            audit.state(name, holder)
        for number in range(STEPS):
            with audit.step():
                training.step()
            assert audit.flush()
            if number == EVENT:
                training.event()
        assert not audit.errors()
        verdicts = audit.verdicts()
    assert len(verdicts) == STEPS
    return verdicts


def data(*shape: int) -> Tensor:
    """Drawn anew in each step, the same in every form."""
    return torch.randn(*shape)
