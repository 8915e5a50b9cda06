"""What auditing may cost a training, as the user says it."""

from __future__ import annotations

import math
import re

from .errors import PlumblineError
from .v1 import audit_pb2

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(B|kB|MB|GB)/s")
_UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def checked_budget(budget: float | str | tuple[float, str] | None) -> audit_pb2.Budget | None:
    """What `watch` was given as budget. Raises PlumblineError where it is no share and no rate."""
    if budget is None:
        return None
    limits = audit_pb2.Budget()
    for limit in budget if isinstance(budget, tuple) else (budget,):
        if isinstance(limit, str):
            found = _RATE.fullmatch(limit)
            rate = float(found[1]) * _UNITS[found[2]] if found else 0.0
            if not 0 < rate < math.inf:
                raise PlumblineError(f'budget: expected a rate above 0 such as "50MB/s", found {limit!r}')
            limits.bytes_per_second = rate
        elif isinstance(limit, (int, float)) and 0 < limit < 1:
            limits.step_share = limit
        else:
            raise PlumblineError(f"budget: expected a share of step time in (0, 1) such as 0.02, found {limit!r}")
    return limits
