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


OPEN: tuple[Open, ...] = ()


def is_open(judged: Judged) -> bool:
    return any(re.match(entry.pattern, signature(judged)) for entry in OPEN)
