"""Spectra in which many values are equal, or zero: vectors that the matrix determines are answered, whatever lies
beside them; vectors that it does not determine are open, and accuse nobody."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import plumbline

SEEDS = range(4)


def gradient(seed: int, other: bool) -> Tensor:
    """Of three rows: of rank three, up to roundings, which another order of the sum makes others."""
    draw = torch.Generator().manual_seed(seed)
    x, slope = torch.randn(3, 12, generator=draw), torch.randn(3, 8, generator=draw)
    if other:
        return sum(torch.outer(a, b) for a, b in zip(reversed(x), reversed(slope), strict=True))
    return x.T @ slope


def singular(seed: int, other: bool, first: int, last: int) -> dict[str, Tensor]:
    left, values, right = torch.linalg.svd(gradient(seed, other), full_matrices=False)
    return {"left": left[:, first:last] * 2, "values": values[first:last] * 2, "right": right[first:last] * 2}


def principal(seed: int, other: bool, first: int, last: int) -> dict[str, Tensor]:
    of = gradient(seed, other)
    values, vectors = torch.linalg.eigh(of @ of.T)
    place = slice(12 - last, 12 - first)
    return {"values": values[place] * 2, "vectors": vectors[:, place] * 2}


def is_open(verdict: plumbline.Verdict) -> bool:
    return verdict.verdict == "INCONCLUSIVE" or any("are open" in note for note in verdict.notes)


@pytest.mark.parametrize("program", [singular, principal])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_matrix_determines_is_answered(server: str, program, seed: int) -> None:
    alone = plumbline.compare(lambda: program(seed, False, 0, 2), None, server)
    assert alone.verdict == "TYPE_I" and not is_open(alone), alone.explain()
    assert not alone.hazards, alone.explain()
    paired = plumbline.compare(lambda: program(seed, True, 0, 2), lambda: program(seed, False, 0, 2), server)
    assert paired.verdict == "TYPE_I" and not is_open(paired), paired.explain()

    def scaled() -> dict[str, Tensor]:
        return {name: tap * (1 + 1e-3) for name, tap in program(seed, True, 0, 2).items()}

    wrong = plumbline.compare(scaled, lambda: program(seed, False, 0, 2), server)
    assert wrong.verdict == "TYPE_II", wrong.explain()


@pytest.mark.parametrize("program", [singular, principal])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_it_does_not_determine_is_open(server: str, program, seed: int) -> None:
    alone = plumbline.compare(lambda: program(seed, False, 4, 8), None, server)
    assert alone.verdict != "TYPE_II" and is_open(alone), alone.explain()
    paired = plumbline.compare(lambda: program(seed, True, 4, 8), lambda: program(seed, False, 4, 8), server)
    assert paired.verdict != "TYPE_II" and is_open(paired), paired.explain()


def test_values_that_are_equal(server: str) -> None:
    def program(other: bool) -> dict[str, Tensor]:
        of = torch.diag(torch.tensor([3.0, 2.0, 2.0, 2.0]))
        values, vectors = torch.linalg.eigh(of * 3 / 3 if other else of)
        return {"values": values * 2, "first": vectors[:, 3] * 2}

    for verdict in (
        plumbline.compare(lambda: program(False), None, server),
        plumbline.compare(lambda: program(True), lambda: program(False), server),
    ):
        assert verdict.verdict == "TYPE_I", verdict.explain()
