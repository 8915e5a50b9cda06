"""Classes of failures that are known and open. The report counts them as wrong; the tests pass over them by name.

Each entry is removed when no pair of the report falls into it any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .judge import Judged
from .sweep import signature


@dataclass(frozen=True)
class Open:
    pattern: str  # Matches the signature of a failure from its beginning.
    reason: str


OPEN = (
    Open(
        r"inconclusive .*(operations that are not modelled, and have no counterpart|which is not modelled)",
        "masks as indices and integer operations are opaque",
    ),
    Open(
        r"inconclusive .*replay is too uncertain",
        "bugs of a large part, beside which the replay of a policy's loss or of a quantiser in two steps gives up",
    ),
    Open(
        r"false .*MATHEMATICS",
        "the freedom of constants that one program has alone is not charged to every tap (0.001 against 1000)",
    ),
    Open(r"false .*LEAF_MISMATCH", "numbers that numpy computed from the step's own are taken for data"),
)


def is_open(judged: Judged) -> bool:
    return any(re.match(entry.pattern, signature(judged)) for entry in OPEN)
