"""Errors that reach the user."""

from __future__ import annotations


class PlumblineError(Exception):
    """Something was asked that cannot be done; the daemon's own words where it said so.

    `fields` holds its field violations: (field, description).
    """

    def __init__(self, message: str, code: str = "", fields: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.fields = fields


class TypeIIError(PlumblineError):
    """Raised at the next step's entry under on_type_ii="raise"."""
