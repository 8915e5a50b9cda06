"""Watches every program for some steps: each step must be judged, none accused, and no bit of the training changed. A
program that can be built with a bug is paired with its healthy self, and with another of these. The bugs between and
within steps (tests/steps) are found beside them, or not, and their fixed twins judged."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from private_daemon import running
from torch.utils._python_dispatch import TorchDispatchMode

import plumbline

from . import (  # noqa: F401 Each registers its programs.
    decisions,
    generative,
    language,
    layers,
    learners,
    likelihoods,
    optimizers,
    scenes,
    science,
    sequences,
    similarity,
    stepwise,
    structures,
    transforms,
    unrolled,
    updates,
    vision,
)
from .training import PROGRAMS, Program, Training

STEPS = 3
SEED = 17
# One or two of each family, for the test run.
SMALL = {
    *("gpt", "convolutions", "graph_attention", "gradient_penalty", "clipped_policy", "momentum_contrast"),
    *("adafactor", "gaussian_process", "radiance_field", "learning_to_learn", "off_policy", "ensembles"),
}
# How the notes of a verdict that is not whole begin.
OPEN = "of the elements are open"


class Narrow(TorchDispatchMode):
    """Counts operations that give 16-bit numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count += isinstance(out, torch.Tensor) and out.dtype in (torch.bfloat16, torch.float16)
        return out


@dataclass
class Outcome:
    program: Program
    verdicts: list[Any]
    errors: dict[int, Exception]
    changed: bool
    narrow: bool  # It really computes in 16 bits.
    bug: list[Any] = field(default_factory=list)  # Verdicts of the program with its bug, paired; empty: it has none.
    twin: list[Any] = field(default_factory=list)  # Of another healthy run, paired.
    open_steps: dict[int, str] = field(default_factory=dict)  # Why a judged step was not answered whole.

    def __post_init__(self) -> None:
        for verdict in self.verdicts:
            if verdict.verdict != "TYPE_I":
                self.open_steps[verdict.step] = f"{verdict.verdict}: {verdict.sentence}"
            elif verdict.coverage.opaque:
                self.open_steps[verdict.step] = "opaque: " + ", ".join(verdict.coverage.opaque_names)
            elif found := [note for note in verdict.notes if OPEN in note]:
                self.open_steps[verdict.step] = found[0]

    @property
    def first(self) -> Any:
        """The first step in which the bug shows: None where it never does."""
        return next((verdict for verdict in self.bug if verdict.verdict == "TYPE_II"), None)

    @property
    def found(self) -> bool:
        return self.first is not None

    @property
    def located(self) -> bool:
        return self.first is not None and self.program.located(self.first)

    @property
    def accused(self) -> int:
        return sum(verdict.verdict == "TYPE_II" for verdict in (*self.verdicts, *self.twin))


def _judged(
    training: Training, name: str, server: str, run: str, reference: str | None = None
) -> tuple[list[Any], dict[int, Exception]]:
    options = {"keep_trace": True} if reference is None else {"reference": reference}
    with plumbline.watch(
        training.models, training.optimizers, server=server, job=name, run=run, every=1, on_type_ii="ignore", **options
    ) as audit:
        for holder, held in training.state.items():
            audit.state(holder, held)
        for _ in range(STEPS):
            with audit.step():
                training.step()
            audit.flush()  # A step that was asked for more is answered before the next.
        return audit.verdicts(), audit.errors()


def _on_the_processor() -> bool:
    return torch.get_default_device().type == "cpu"


def _plain(program: Program, seed: int) -> Training:
    training = program.training(seed)
    for _ in range(STEPS):
        training.step()
    return training


def _differ(a: Training, b: Training) -> bool:
    return any(
        not torch.equal(x.nan_to_num(), y.nan_to_num())
        for x, y in zip(a.tensors(), b.tensors(), strict=True)
        if not x.is_complex()
    )


def _watched(program: Program, seed: int, server: str) -> Outcome:
    counted = program.training(seed)
    with Narrow() as narrow:
        counted.step()
    plain = _plain(program, seed)
    training = program.training(seed)
    name = f"{program.name}-{program.kind}"
    verdicts, errors = _judged(training, name, server, "healthy")
    changed = _differ(plain, training)
    if changed and not _on_the_processor():  # Some kernels of devices add up in another order each time.
        changed = not _differ(plain, _plain(program, seed))
    outcome = Outcome(program, verdicts, errors, changed, narrow.count > 0)
    if program.bug and program.kind == "fp32":
        outcome.bug, _ = _judged(program.training(seed, wrong=True), name, server, "wrong", "healthy")
        outcome.twin, _ = _judged(program.training(seed), name, server, "twin", "healthy")
    return outcome


def _refused(program: Program, seed: int) -> str:
    """Why PyTorch does not run the program on a device; empty: it does."""
    if _on_the_processor():
        return ""
    try:
        program.training(seed).step()
    except RuntimeError as error:
        return str(error)
    return ""


def _lines(outcome: Outcome) -> list[str]:
    name = f"  {outcome.program.name + f' ({outcome.program.kind})':40} "
    lines = [f"{name}step {step}: {why[:200]}" for step, why in outcome.open_steps.items()]
    lines += [f"{name}step {step}: {error}" for step, error in outcome.errors.items()]
    if outcome.changed:
        lines.append(f"{name}the training's bits were changed")
    if outcome.bug and not outcome.found:
        lines.append(f"{name}its bug: {outcome.bug[0].verdict}: {outcome.bug[0].sentence[:160]}")
    elif outcome.bug and not outcome.located:
        lines.append(f"{name}its bug is placed at {outcome.first.suspect}")
    lines += [
        f"{name}its twin, step {verdict.step}: {verdict.verdict}: {verdict.sentence[:160]}"
        for verdict in outcome.twin
        if verdict.verdict != "TYPE_I"
    ]
    return lines


def measure(small: bool, seed: int | None) -> tuple[str, dict]:
    seed = SEED if seed is None else seed
    torch.set_num_threads(1)
    programs = [p for p in PROGRAMS if not small or p.name in SMALL]
    with running() as daemon, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused = {p: why for p in programs if (why := _refused(p, seed))}
        outcomes = [_watched(p, seed, daemon.address) for p in programs if p not in refused]
        steps_bugs = stepwise.judged(small, seed, daemon.address)
    verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    steps = STEPS * len(outcomes)

    def percent(count: int) -> float:
        return round(100 * count / max(1, steps), 1)

    lines = ["what was not answered whole, or not placed, by program"]
    lines += [f"  {p.name + f' ({p.kind})':40} PyTorch refuses it: {why[:160]}" for p, why in refused.items()]
    lines += [line for outcome in outcomes for line in _lines(outcome)]
    lines += [line for bug in steps_bugs for line in bug.lines()]
    return "\n".join(lines) + f"\n\nprograms drawn from --seed {seed}", {
        "programs": len({outcome.program.name for outcome in outcomes}),
        "refused": len(refused),
        "in_16_bits": sum(outcome.narrow for outcome in outcomes),
        "steps": steps,
        "answered_whole_pct": percent(len(verdicts) - sum(len(outcome.open_steps) for outcome in outcomes)),
        "opaque_pct": percent(sum(verdict.coverage.opaque > 0 for verdict in verdicts)),
        "inconclusive_pct": percent(sum(verdict.verdict == "INCONCLUSIVE" for verdict in verdicts)),
        "false_type_ii": sum(outcome.accused for outcome in outcomes) + sum(bug.accused for bug in steps_bugs),
        "unjudged": steps - len(verdicts),
        "bugs": sum(bool(outcome.bug) for outcome in outcomes) + len(steps_bugs),
        "bugs_found": sum(outcome.found for outcome in outcomes) + sum(bug.found for bug in steps_bugs),
        "bugs_located": sum(outcome.located for outcome in outcomes) + sum(bug.located for bug in steps_bugs),
        "twins_whole": sum(not bug.twin_open for bug in steps_bugs)
        + sum(all(v.verdict == "TYPE_I" for v in outcome.twin) for outcome in outcomes if outcome.bug),
        "bitwise_changed": sum(outcome.changed for outcome in outcomes),
    }
