"""Watches every program for some steps: each step must be judged, none accused, and no bit of the training changed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from private_daemon import running

import plumbline

from . import (  # noqa: F401 Each registers its programs.
    decisions,
    generative,
    language,
    optimizers,
    science,
    sequences,
    similarity,
    vision,
)
from .training import PROGRAMS, Program

STEPS = 3
SEED = 17
# One or two of each family, for the test run.
SMALL = {
    *("gpt", "convolutions", "graph_attention", "gradient_penalty", "clipped_policy", "momentum_contrast"),
    *("adafactor", "gaussian_process"),
}
# How the notes of a verdict that is not whole begin.
OPEN = "of the elements are open"


@dataclass
class Outcome:
    program: Program
    verdicts: list[Any]
    errors: dict[int, Exception]
    changed: bool
    raised: str = ""
    open_steps: dict[int, str] = field(default_factory=dict)  # Why a judged step was not answered whole.

    def __post_init__(self) -> None:
        for verdict in self.verdicts:
            if verdict.verdict != "TYPE_I":
                self.open_steps[verdict.step] = f"{verdict.verdict}: {verdict.sentence}"
            elif verdict.coverage.opaque:
                self.open_steps[verdict.step] = "opaque: " + ", ".join(verdict.coverage.opaque_names)
            elif found := [note for note in verdict.notes if OPEN in note]:
                self.open_steps[verdict.step] = found[0]


def _watched(program: Program, seed: int, server: str) -> Outcome:
    plain = program.training(seed)
    for _ in range(STEPS):
        plain.step()
    training = program.training(seed)
    name = f"{program.name}-{program.kind}"
    with plumbline.watch(training.models, training.optimizers, server=server, job=name, every=1) as audit:
        for holder, held in training.state.items():
            audit.state(holder, held)
        for _ in range(STEPS):
            with audit.step():
                training.step()
            audit.flush()  # A step that was asked for more is answered before the next.
        verdicts, errors = audit.verdicts(), audit.errors()
    changed = any(
        not torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(plain.tensors(), training.tensors(), strict=True)
        if not a.is_complex()
    )
    return Outcome(program, verdicts, errors, changed)


def measure(small: bool, seed: int | None) -> tuple[str, dict]:
    seed = SEED if seed is None else seed
    torch.set_num_threads(1)
    programs = [p for p in PROGRAMS if not small or p.name in SMALL]
    outcomes = []
    with running() as daemon, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [_watched(p, seed, daemon.address) for p in programs]
    verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    steps = STEPS * len(outcomes)

    def percent(count: int) -> float:
        return round(100 * count / max(1, steps), 1)

    lines = ["what was not answered whole, by program"]
    for outcome in outcomes:
        name = f"{outcome.program.name} ({outcome.program.kind})"
        lines += [f"  {name:40} step {step}: {why[:200]}" for step, why in outcome.open_steps.items()]
        lines += [f"  {name:40} step {step}: {error}" for step, error in outcome.errors.items()]
        if outcome.changed:
            lines.append(f"  {name:40} the training's bits were changed")
    return "\n".join(lines) + f"\n\nprograms drawn from --seed {seed}", {
        "programs": len(outcomes),
        "steps": steps,
        "answered_whole_pct": percent(len(verdicts) - sum(len(outcome.open_steps) for outcome in outcomes)),
        "opaque_pct": percent(sum(verdict.coverage.opaque > 0 for verdict in verdicts)),
        "inconclusive_pct": percent(sum(verdict.verdict == "INCONCLUSIVE" for verdict in verdicts)),
        "false_type_ii": sum(verdict.verdict == "TYPE_II" for verdict in verdicts),
        "unjudged": steps - len(verdicts),
        "bitwise_changed": sum(outcome.changed for outcome in outcomes),
    }
