"""The programs plumblined and plumb, for x86-64 Linux with AVX2 and FMA."""

import os
import sys
from pathlib import Path
from typing import NoReturn


def program(name: str) -> Path:
    """Path of "plumblined" or "plumb"."""
    return Path(__file__).resolve().parent / "bin" / name


def _become(name: str) -> NoReturn:
    path = program(name)
    os.execv(path, [name, *sys.argv[1:]])


def plumblined() -> NoReturn:
    _become("plumblined")


def plumb() -> NoReturn:
    _become("plumb")
