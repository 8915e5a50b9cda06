"""Matrices of deficient rank: what their pseudo-inverses are hangs on which singular values a kernel takes for 0. Rows
of attention that are masked all over. Of what is not known of them nobody is accused, and nobody acquitted."""

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


def padded(part: int, replaced: bool = False) -> dict[str, Tensor]:
    """Attention of a row whose keys are all masked, by a number beside which fp32 holds none of its scores: their
    differences are nothing as executed, and what they are in exact arithmetic no replay knows."""
    q, k, v = (torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2, 3))
    mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), torch.finfo(torch.float32).min)
    mask[0] = torch.finfo(torch.float32).min
    scores = q @ k.mT
    scores = scores.masked_fill(mask < 0, mask.min()) if replaced else scores + mask
    return {"loss": (scores.softmax(-1) @ v)[:part].square().mean()}


def test_what_a_replay_does_not_know_acquits_nobody(server: str) -> None:
    for part in (2, 3):
        verdict = plumbline.compare(lambda part=part: padded(part), lambda: padded(4), server)
        assert verdict.verdict == "INCONCLUSIVE", verdict.explain()
        verdict = plumbline.compare(lambda part=part: padded(part, True), lambda: padded(4), server)
        assert verdict.verdict == "INCONCLUSIVE", verdict.explain()
