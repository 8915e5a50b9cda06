"""Matrices of deficient rank: what their pseudo-inverses are hangs on which singular values a kernel takes for 0. Of
what is not known of them nobody is accused, and nobody acquitted."""

import pytest
import torch
from torch import Tensor

import plumbline


def column(rows: int) -> Tensor:
    return torch.randn(rows, 1, generator=torch.Generator().manual_seed(rows))


def inverted() -> dict[str, Tensor]:
    return {"inverse": torch.linalg.pinv(column(3) @ column(50).mT)}


def by_formula() -> dict[str, Tensor]:
    """Of one column by one row, the inverse is the transposed over both lengths squared."""
    product = column(3) @ column(50).mT
    return {"inverse": product.mT / product.square().sum()}


def without_its_last() -> dict[str, Tensor]:
    inverse = inverted()["inverse"].flatten()
    return {"inverse": torch.cat([inverse[:-1], torch.zeros(1)]).view(50, 3)}


@pytest.mark.parametrize("capture", ["leaves", "outputs"])
def test_nobody_is_accused(server: str, capture: str) -> None:
    for target, reference in ((inverted, by_formula), (by_formula, inverted), (inverted, by_formula())):
        verdict = plumbline.compare(target, reference, server, capture=capture)
        assert verdict.verdict == "INCONCLUSIVE", verdict.explain()
        assert all(tap.outcome != "TYPE_II" for tap in verdict.taps.values()), verdict.explain()
    assert plumbline.compare(inverted, inverted, server, capture=capture).grade == "MATCH"


def test_nobody_is_acquitted(server: str) -> None:
    for target, reference in ((without_its_last, inverted), (inverted, without_its_last)):
        verdict = plumbline.compare(target, reference, server)
        assert verdict.verdict != "TYPE_I", verdict.explain()
    full = {"inverse": torch.linalg.pinv(column(12).view(4, 3))}
    changed = {"inverse": full["inverse"] * (1 + 1e-2)}
    assert plumbline.compare(lambda: full, changed, server).verdict == "TYPE_II"
