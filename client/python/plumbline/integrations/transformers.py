"""Audits the runs of Hugging Face's Trainer and its kin (TRL's too): one audited step is one step of the optimizer,
with all its micro-batches.

    Trainer(..., callbacks=[AuditCallback("unix:///run/plumbline.sock", every=100)])
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..disabled import Disabled
from ..watch import Audit, watch


class AuditCallback(TrainerCallback):
    """Watches the model and the optimizer of the Trainer that it is given to; `options` are those of watch(). The job
    is named after the run, unless they say otherwise. `audit` is there from the start of training on, for taps and
    verdicts. Where train() raises, close() ends the step that was running."""

    def __init__(self, server: str | None = None, **options: Any) -> None:
        self.audit: Audit | Disabled | None = None
        self._server = server
        self._options = options
        self._step: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        self.close()
        options = {"job": _job_name(args), "first_step": state.global_step, **self._options}
        self.audit = watch(given["model"], given.get("optimizer"), self._server, **options)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.audit is not None:
            step = self.audit.step()
            step.__enter__()
            self._step = step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.audit is not None:
            self.audit.flush()

    def close(self) -> None:
        """Ends the audit, and a step that an exception left open, which is not judged."""
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(RuntimeError, None, None)
        audit, self.audit = self.audit, None
        if audit is not None:
            audit.close()


def _job_name(args: TrainingArguments) -> str:
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._:-") else "-" for c in str(args.run_name or ""))
    return name[:128] or "trainer"
