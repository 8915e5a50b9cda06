"""The verdicts on drawn pairs and on cases kept, and the shrinker that makes cases."""

from collections.abc import Iterator

import pytest
import torch

from equivalence.cases import CASES, Case
from equivalence.forms import KINDS
from equivalence.judge import RIGHT, Judged, describe, judge
from equivalence.label import label_of
from equivalence.program import text
from equivalence.shrink import shrink
from equivalence.spec import Pair, draw_pair
from equivalence.sweep import Broken, one, running

SEED = 20260
PAIRS = 80


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # Small tensors.
    with running() as daemon:
        yield daemon.address
    torch.set_num_threads(threads)


def check(judged: Judged) -> None:
    assert judged.outcome == RIGHT, describe(judged)


@pytest.mark.parametrize("seed", range(SEED, SEED + PAIRS))
def test_verdict_on_a_drawn_pair(seed: int, server: str) -> None:
    result = one(seed, server)
    assert not isinstance(result, Broken), result
    check(result)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict_on_a_case(case: Case, server: str) -> None:
    judged = judge(case.pair, server)
    assert judged.expected == case.expected, describe(judged)
    check(judged)


def test_shrinker_keeps_what_fails_and_drops_the_rest() -> None:
    pair = next(p for p in (draw_pair(s, "norm_unbiased") for s in range(100)) if len(p.spec.blocks) > 6 and p.rewrites)

    def fails(candidate: Pair) -> bool:
        return any(a.edit == "norm_unbiased" for a in candidate.mutations) and label_of(candidate).gap > 0

    small = shrink(pair, fails)
    assert fails(small)
    assert [a.edit for a in (*small.target, *small.reference)] == ["norm_unbiased"]
    assert [KINDS[b.kind].slot for b in small.spec.blocks] == ["input", "layer", "loss", "step", "optimizer"]
    assert (small.spec.batch, small.spec.time, small.spec.width) == (2, 3, 4)
    assert len(text(small.spec, small.target).source.splitlines()) < len(
        text(pair.spec, pair.target).source.splitlines()
    )
