"""Audits a training loop that accelerate prepared, without a change inside of it: one audited step is one step of the
optimizer, with all its micro-batches.

    with audited(accelerator, "unix:///run/plumbline.sock", job="llama-ft", every=100):
        for batch in batches:
            with accelerator.accumulate(model):
                ...
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from accelerate import Accelerator

from ..run.steps import Steps
from ..run.within import audited as within


def audited(accelerator: Accelerator, server: str | None = None, **options: Any) -> AbstractContextManager[Steps]:
    """Watches what `accelerator` has prepared; `options` are those of watch(). What the block is given has verdicts()
    and errors(), complete once it has ended."""
    return within(accelerator._optimizers, server, **options)
