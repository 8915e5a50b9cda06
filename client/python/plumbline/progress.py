"""What a comparison that takes long is at, shown with tqdm on a terminal or in a notebook."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from collections.abc import Sequence
from typing import Any

SHOWN_AFTER_S = 2.0
REFRESHED_EVERY_S = 0.5

log = logging.getLogger("plumbline")


class Progress:
    """Shows which of its phases has begun, and for how long all of it has taken, until the `with` block ends.

    Nothing is shown before SHOWN_AFTER_S, without tqdm, or where standard error is neither a terminal nor a notebook's.
    The bar lives in a thread of its own, as the one that compares runs somebody's program or waits.
    """

    def __init__(self, phases: Sequence[str]) -> None:
        self._phases = phases
        self._at = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._show, name="plumbline-progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def at(self, phase: str) -> None:
        self._at = self._phases.index(phase)

    def _show(self) -> None:
        try:
            if self._done.wait(SHOWN_AFTER_S) or not _somebody_looks():
                return
            bar = _bar(len(self._phases))
            while not self._done.is_set():
                bar.n = self._at
                bar.set_description_str(f"plumbline: {self._phases[self._at]}", refresh=True)
                self._done.wait(REFRESHED_EVERY_S)
            bar.close()
        except Exception:
            log.debug("plumbline: progress cannot be shown", exc_info=True)


def _somebody_looks() -> bool:
    seen = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    return seen and importlib.util.find_spec("tqdm") is not None


def _bar(phases: int) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=phases, leave=False, bar_format="{desc} [{n_fmt}/{total_fmt}, {elapsed}]")
