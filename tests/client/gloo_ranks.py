"""The ranks of a job, each a process of its own, with one daemon."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plumbline import daemon

RESULT_S_MAX, END_S_MAX = 120, 60


def results_of(work: Callable[[int, str, str, Any], None], ranks: int, scratch: Path) -> list[Any]:
    """What each rank puts into the queue that `work(rank, server, meeting, results)` is given; `meeting` is a file that
    process groups begin with. In the order in which they came."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with daemon.private() as server:
        processes = [
            context.Process(target=work, args=(rank, server, str(scratch / "meeting"), results))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        ended = [results.get(timeout=RESULT_S_MAX) for _ in processes]
        for process in processes:
            process.join(END_S_MAX)
    return ended
