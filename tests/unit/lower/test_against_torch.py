"""Replays of captured steps against what PyTorch computed, operation by operation."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import PROGRAMS, Program, Training, expressions, narrow_expressions

from plumbline import dump
from plumbline.plan import Plan

torch.set_num_threads(1)  # Small tensors.

ROOT = Path(__file__).resolve().parents[3]
CHECK = Path(os.environ.get("PLUMBLINE_BUILD", ROOT / "build" / "release")) / "tests" / "unit" / "lower" / "check_dump"
RELUS = [f"aten::{name}.default" for name in ("relu", "relu_", "leaky_relu", "leaky_relu_")]

# Largest deviation of a result from the replay, relative to the result's largest magnitude. LOCAL: from an operation's
# own inputs; some sums of bf16 tensors are kept in bf16. WHOLE: from the step's leaves, where rounding adds up and Adam
# divides small gradients by their own size; no claim for 16-bit formats.
LOCAL = {"fp64": 1e-12, "fp32": 2e-6, "bf16": 2**-5, "fp16": 2**-8, "autocast": 2**-7, "autocast16": 2**-10}
WHOLE = {"fp64": 1e-11, "fp32": 1e-2}
# The error of the fp64 replay itself, found by a replay in more bits. Adam, again, divides small numbers.
WIDE = 1e-10
EXPRESSIONS = expressions()
NARROW_EXPRESSIONS = narrow_expressions()

# What no rule models, on purpose.
OPAQUE = {"nan_to_num", "sort", "argsort", "_unique2"}


def check(
    run: Callable[[], Any], path: Path, model: torch.nn.Module | None = None, optimizer: Any = None
) -> dict[str, Any]:
    plan = Plan(positive_side=RELUS)
    messages = dump.record(run, [model] if model else [], [optimizer] if optimizer else [], plan, outputs=True)
    dump.save(messages, path)
    done = subprocess.run([CHECK, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert_below(report["wide"], WIDE)
    assert report["wide"].keys() == report["whole"].keys()
    return report


def assert_below(deviations: dict[str, float], limit: float) -> None:
    above = {name: value for name, value in deviations.items() if not value <= limit}
    assert not above, str(above)


@pytest.mark.parametrize(
    ("program", "kind"),
    [pytest.param(program, kind, id=f"{program.name}-{kind}") for program in PROGRAMS for kind in program.kinds],
)
def test_training_step(program: Program, kind: str, tmp_path: Path) -> None:
    training = Training(program, kind)
    training.step()  # Optimizer state exists from the second step on.
    report = check(training.step, tmp_path / "step.pb", training.model, training.optimizer)
    assert report["opaque"] == []
    # Where the scale overflows, exact arithmetic stays finite and execution does not: the rounded replay knows.
    assert_below(report["rounded" if "overflow" in program.name else "local"], LOCAL[kind])
    if kind in WHOLE:
        assert_below(report["whole"], WHOLE[kind])


def test_first_step_makes_the_optimizer_state(tmp_path: Path) -> None:
    for program in PROGRAMS[:4]:
        training = Training(program, "fp64")
        report = check(training.step, tmp_path / "step.pb", training.model, training.optimizer)
        assert report["opaque"] == []
        assert_below(report["whole"], WHOLE["fp64"])


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression(name: str, tmp_path: Path) -> None:
    report = check(EXPRESSIONS[name], tmp_path / "step.pb")
    assert not [op for op in report["opaque"] if op.split("::")[1].split(".")[0] not in OPAQUE]
    assert_below(report["local"], LOCAL["fp64"])
    assert_below(report["whole"], WHOLE["fp64"])


@pytest.mark.parametrize("name", NARROW_EXPRESSIONS)
def test_narrow_expression(name: str, tmp_path: Path) -> None:
    report = check(NARROW_EXPRESSIONS[name], tmp_path / "step.pb")
    assert report["opaque"] == []
    assert_below(report["local"], LOCAL[name.rsplit("-", 1)[1]])
