"""Audits the training that a `with` block does, as `python -m plumbline run` does that of a script."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..watch import watch
from .steps import Steps

FLUSH_S_MAX = 60.0


@contextlib.contextmanager
def audited(optimizers: Iterable[Any], server: str | None, **options: Any) -> Iterator[Steps]:
    """`optimizers` are those that were made before; `options` are those of watch(). At the end the verdicts are waited
    for. The block itself must be in the thread that trains."""

    def start(models: list[torch.nn.Module], trained: list[torch.optim.Optimizer], step: int) -> Any:
        return watch(models, trained, server, **{**options, "first_step": step})

    steps = Steps(start, optimizers=optimizers, first=options.get("first_step", 0))
    error: BaseException | None = None
    try:
        yield steps
    except BaseException as raised:
        error = raised
        raise
    finally:
        steps.finish(error)
        steps.flush(FLUSH_S_MAX)
        steps.close()
