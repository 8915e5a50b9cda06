"""Settings of all tests."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """What the tests' modules have loaded, PyTorch above all, stays: a process of tests looks through it time and again
    otherwise, a twentieth of its time."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # Extension modules tell at exit what is left.
