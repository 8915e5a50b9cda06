"""Whether this process is about to run somebody's program, which decides itself when PyTorch is loaded."""

from __future__ import annotations

import sys


def starts_a_program() -> bool:
    """Of `python -m plumbline run PROGRAM`, until the program has its own arguments."""
    if sys.argv[:2] != ["-m", "run"]:  # As Python leaves them while it looks for the module.
        return False
    return sys.orig_argv[-len(sys.argv)] in ("plumbline", "-mplumbline")
