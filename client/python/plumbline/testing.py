"""For test suites."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .compare import Program, compare
from .verdict import Verdict


def assert_equivalent(
    target: Program,
    reference: Program | Mapping[str, torch.Tensor],
    server: str | None = None,
    profile: str | None = None,
    *,
    allow_inconclusive: bool = False,
    **options: object,
) -> Verdict:
    """Compares as `plumbline.compare` does; AssertionError with the printed verdict unless it is TYPE_I.

    INCONCLUSIVE passes only with `allow_inconclusive`.
    """
    __tracebackhide__ = True  # pytest then shows the caller's line and the verdict, and nothing between.
    verdict = compare(target, reference, server, profile, **options)  # type: ignore[arg-type]
    if verdict.verdict == "TYPE_I" or (allow_inconclusive and verdict.verdict == "INCONCLUSIVE"):
        return verdict
    raise AssertionError(f"\n{verdict}")
