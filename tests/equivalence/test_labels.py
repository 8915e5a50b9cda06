"""Labels are right: exact arithmetic is PyTorch's, every rewrite keeps its program and every mutation changes it."""

from dataclasses import replace

import pytest
import torch

from equivalence.exact.reading import Reading
from equivalence.exact.tensor import is_float
from equivalence.forms import KINDS, MUTATIONS, REWRITES
from equivalence.label import BELOW, REFUTED, TYPE_I, TYPE_II, evaluate, label_of
from equivalence.program import Taps, text, torch_program
from equivalence.spec import Applied, Pair, Spec, applicable, draw_pair

SEEDS = 12  # In which a mutation must change something: a clipped ratio may lie inside of any limit.
TOLERANCE = 1e-6  # Of fp64 against 200 bits, relative to a tap: Adam divides by gradients that may be small.


def exactly(spec: Spec, edits: tuple[Applied, ...]) -> Taps:
    out = {}
    for name, tap in evaluate(spec, edits, Reading()).items():
        values = [float(v.mid()) if is_float(tap.data) else float(v) for v in tap.data.reshape(-1)]
        out[name] = torch.tensor(values, dtype=torch.float64).reshape(tap.shape)
    return out


def in_fp64(spec: Spec, edits: tuple[Applied, ...]) -> Taps:
    torch.manual_seed(spec.seed)
    return torch_program(replace(spec, autocast=False), edits, torch.float64, "program.py")()


def test_there_are_as_many_as_promised() -> None:
    assert len(REWRITES) >= 60 and len(MUTATIONS) >= 60
    reasons = [edit.reason for edit in (*REWRITES.values(), *MUTATIONS.values())]
    assert all(reason.endswith(".") for reason in reasons)


@pytest.mark.parametrize("name", [*REWRITES, *MUTATIONS])
def test_exact_arithmetic_is_what_pytorch_computes(name: str) -> None:
    """Both sides of a pair with this edit, whose other parts are random, in fp64 and exactly."""
    pair = draw_pair(1, name)
    assert name in {a.edit for a in (*pair.target, *pair.reference)}
    for edits in (pair.target, pair.reference):
        wide, exact = in_fp64(pair.spec, edits), exactly(pair.spec, edits)
        assert list(wide) == list(exact)
        for tap, value in wide.items():
            finite = exact[tap].isfinite()
            assert torch.equal(value.detach().double()[~finite], exact[tap][~finite]), tap
            scale = exact[tap][finite].abs().max()
            error = (value.detach().double() - exact[tap])[finite].abs().max()
            assert error <= TOLERANCE * scale + 1e-12, f"{tap}\n{text(pair.spec, edits).source}"


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_keeps_the_program(name: str) -> None:
    pair = draw_pair(2, name)
    label = label_of(pair)
    assert label.expected == TYPE_I, f"{label}\n{text(pair.spec, pair.target).source}"


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_changes_the_program(name: str) -> None:
    labels = []
    for seed in range(SEEDS):
        labels.append(label_of(draw_pair(seed, name)))
        if labels[-1].expected == TYPE_II:
            return
    pytest.fail(f"{name} changed nothing that must be found: {labels}")


def test_a_false_rewrite_is_refuted() -> None:
    """Labels do not follow from a registry alone: what is called a rewrite and is none is found."""
    lie = replace(MUTATIONS["norm_unbiased"], mutates=False, name="lie")
    REWRITES["lie"] = lie
    try:
        pair = draw_pair(3, "lie")
        alone = replace(pair, target=tuple(a for a in (*pair.target, *pair.reference) if a.edit == "lie"), reference=())
        assert label_of(alone).expected == REFUTED
    finally:
        del REWRITES["lie"]


@pytest.mark.parametrize(("delta", "expected"), [(1e-9, TYPE_I), (2e-7, BELOW), (1e-5, TYPE_II)])
def test_what_must_be_found_depends_on_what_constants_round(delta: float, expected: str) -> None:
    pair = next(p for p in map(lambda s: draw_pair(s, "residual_factor_off"), range(100)) if not p.rewrites)
    moved = tuple(replace(a, delta=delta) for a in pair.mutations)
    assert label_of(replace(pair, target=moved, reference=())).expected == expected


def test_every_kind_of_block_has_edits() -> None:
    edited = {edit.kind for edit in (*REWRITES.values(), *MUTATIONS.values())}
    assert {name for name, kind in KINDS.items() if name not in edited} <= {"features"}


def test_a_change_that_rounding_of_constants_undoes_is_none() -> None:
    """1 - 2.3e-8 is 1 in fp32; the constants of the rewrite beside it, 1000 and 0.001, are not inverse there."""
    spec = draw_pair(1, "temperature_off").spec

    def applied(edit: str, delta: float = 0.0) -> Applied:
        known = {**REWRITES, **MUTATIONS}[edit]
        return Applied(edit, next(i for i in range(len(spec.blocks)) if applicable(spec, i, known)), delta)

    scaled = applied("loss_scaled_by_thousand")
    assert label_of(Pair(spec, (applied("temperature_off", -2.3e-8), scaled))).expected == TYPE_I
    assert label_of(Pair(spec, (applied("temperature_off", -2.3e-4), scaled))).expected == TYPE_II
