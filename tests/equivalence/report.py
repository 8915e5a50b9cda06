"""`./tests/report equivalence`: many pairs, and what the verdicts on them come to."""

from __future__ import annotations

import random

from .sweep import figures, sweep, table, wrong

PAIRS, PAIRS_SMALL = 20000, 100
SEED_SMALL = 7
SEEDS = 1_000_000  # Of pairs, for one seed of a report.


def measure(small: bool, seed: int | None, pairs: int | None) -> tuple[str, dict]:
    if seed is None:
        seed = SEED_SMALL if small else random.SystemRandom().randrange(2**31)
    count = pairs or (PAIRS_SMALL if small else PAIRS)
    results = sweep(range(seed * SEEDS, seed * SEEDS + count))
    found = figures([result for _, result in results])
    return f"{table(results)}\n\npairs drawn from --seed {seed}", {**found, "passed": not wrong(found)}
