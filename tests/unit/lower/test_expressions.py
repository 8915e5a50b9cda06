"""Operations one by one: exact replays are PyTorch's own fp64 results, and what kernels give in fp32 and
bf16 lies in each operation's own enclosure."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from complex_expressions import complex_expressions
from core_expressions import core_expressions
from further_expressions import further_expressions
from image_expressions import Expression, image_expressions
from matrix_expressions import matrix_expressions
from test_against_torch import LOCAL, WHOLE, assert_below, check

import plumbline
from plumbline import daemon


def every_expression(dtype: torch.dtype = torch.float64, seed: int = 3) -> dict[str, Expression]:
    every = image_expressions(dtype, seed) | core_expressions(dtype, seed) | further_expressions(dtype, seed)
    if dtype in (torch.float64, torch.float32):
        every |= complex_expressions(dtype, seed) | matrix_expressions(dtype, seed)
    return every


EXACT = every_expression()
NARROW = {"fp32": torch.float32, "bf16": torch.bfloat16}


@pytest.mark.parametrize("name", EXACT)
def test_exact_replay(name: str, tmp_path: Path) -> None:
    report = check(EXACT[name], tmp_path / "step.pb")
    assert report["opaque"] == []
    assert_below(report["local"], LOCAL["fp64"])
    assert_below(report["whole"], WHOLE["fp64"])


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with daemon.private() as address:
        yield address


@pytest.mark.parametrize("kind", NARROW)
def test_kernels_keep_their_enclosures(kind: str, server: str) -> None:
    for seed in (3, 4):
        for name, run in every_expression(NARROW[kind], seed).items():
            try:
                run()
            except RuntimeError as error:
                assert "not implemented for 'BFloat16'" in str(error), name
                continue
            verdict = plumbline.compare(run, None, server, capture="outputs")
            assert verdict.coverage.opaque == 0, (name, list(verdict.coverage.opaque_names))
            answered = verdict.cause != "UNANSWERED"  # Cancelling digits may leave nothing to bound.
            assert verdict.verdict == "TYPE_I" or not answered, (name, seed, verdict.explain())
