"""Errors that reach the user."""

from __future__ import annotations


def traced(trace_id: str) -> str:
    """What a line of the log says of a step's trace id: the daemon's log has the same."""
    return f" (trace {trace_id})" if trace_id else ""


class PlumblineError(Exception):
    """Something was asked that cannot be done; the daemon's own words where it said so.

    `fields` holds its field violations: (field, description). `trace_id` is that of the step which the daemon refused,
    as its log names it; empty: of no step.
    """

    def __init__(self, message: str, code: str = "", fields: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.fields = fields
        self.trace_id = ""


class TypeIIError(PlumblineError):
    """Raised at the next step's entry under on_type_ii="raise"."""
