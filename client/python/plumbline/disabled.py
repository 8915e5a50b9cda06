"""An audit that was switched off: PLUMBLINE_DISABLE=1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from .errors import PlumblineError
from .v1 import audit_pb2
from .verdict import Verdict


class NotSampled:
    """What step() gives for a step that is not audited."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        return None


NOT_SAMPLED = NotSampled()


class Disabled:
    """An audit that does nothing."""

    sampled = due = judged_together = False
    missed_reason = ""
    identity = audit_pb2.Identity()

    def step(self, trace_id: str | None = None) -> NotSampled:
        return NOT_SAMPLED

    def skip(self) -> None:
        return None

    def follow(self, models: Iterable[torch.nn.Module], optimizers: Iterable[Any]) -> None:
        return None

    def captures_by(self, mode: Any) -> bool:
        return False

    def drop(self, reason: str, message: str) -> None:
        return None

    def tap(self, name: str, tensor: torch.Tensor) -> None:
        return None

    def guard(self, name: str, minimum: float | None = None, maximum: float | None = None) -> None:
        return None

    def state(self, name: str, holder: Any) -> None:
        return None

    def reference(self, values: Mapping[str, torch.Tensor | float]) -> None:
        return None

    def on_verdict(self, listener: Callable[[Verdict], None]) -> None:
        return None

    def verdicts(self) -> list[Verdict]:
        return []

    def errors(self) -> dict[int, PlumblineError]:
        return {}

    def missed(self) -> int:
        return 0

    def flush(self, timeout: float | None = 60.0) -> bool:
        return True

    def close(self, timeout: float = 0.0) -> None:
        return None

    def __enter__(self) -> Disabled:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        return None
