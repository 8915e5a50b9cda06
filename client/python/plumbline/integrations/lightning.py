"""Audits the runs of Lightning's Trainer: one audited step is one step of the optimizers, with all its batches.

Trainer(..., callbacks=[AuditCallback("unix:///run/plumbline.sock", job="llama-ft", every=100)])
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:  # The same library goes by two names.
    from pytorch_lightning import Callback, LightningModule, Trainer

from ..disabled import Disabled
from ..watch import Audit, watch


class AuditCallback(Callback):
    """Watches the module and the optimizers of the Trainer that it is given to; `options` are those of watch(). The job
    is named after the module's class, unless they say otherwise. `audit` is there from the start of training on, for
    taps and verdicts. close() ends it."""

    def __init__(self, server: str | None = None, **options: Any) -> None:
        self.audit: Audit | Disabled | None = None
        self._server = server
        self._options = options
        self._step: Any = None
        self._steps_before = 0  # Of the optimizers.

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.close()
        options = {"job": type(pl_module).__name__, "first_step": trainer.global_step, **self._options}
        self.audit = watch(pl_module, trainer.optimizers, self._server, **options)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self.audit is not None and self._step is None:
            self._steps_before = trainer.global_step
            step = self.audit.step()
            step.__enter__()
            self._step = step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self._step is not None and trainer.global_step != self._steps_before:
            step, self._step = self._step, None
            step.__exit__(None, None, None)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._give_up(RuntimeError)  # Batches behind the last step.
        if self.audit is not None:
            self.audit.flush()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._give_up(type(exception))

    def close(self) -> None:
        """Ends the audit."""
        self._give_up(RuntimeError)
        audit, self.audit = self.audit, None
        if audit is not None:
            audit.close()

    def _give_up(self, error: type[BaseException]) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(error, None, None)
