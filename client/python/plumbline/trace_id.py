"""Trace ids of steps, as W3C Trace Context has them (3.2.2.3)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from .errors import PlumblineError

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")


def new_trace_id() -> str:
    """One of os.urandom: no generator that the training draws from is touched."""
    return os.urandom(16).hex()


def chosen_trace_id(given: str | None, wrong: Callable[[PlumblineError], None]) -> str:
    """The one that was given, otherwise a new one. Where what was given is none, `wrong` is called with why: a tracer
    without an open span may well give zeros, which is no reason to stop a training."""
    if given is None:
        return new_trace_id()
    if isinstance(given, str) and _TRACE_ID.fullmatch(given):
        return given
    found = repr(given)[:80]
    wrong(PlumblineError(f"trace_id: expected 32 lowercase hexadecimal digits that are not all 0, found {found}"))
    return new_trace_id()
