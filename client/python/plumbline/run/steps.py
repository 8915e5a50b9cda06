"""Finds the steps of a training that knows nothing of being audited, and audits those that are sampled.

A step begins with the first call of a module that has parameters and that no other module called, in training mode and
with gradients on; or with an optimizer's step that is given a closure, since that calls the modules. It ends before the
next such call, in whatever mode, once an optimizer has stepped. So micro-batches make one step, two optimizers of one
model make one too, and a generator and a discriminator that step in turn make two. What a program does right after its
optimizer has stepped, such as clipping its weights or averaging them, is part of the step; what it does from an
evaluation on is not, and must leave alone what is trained.

A program that trains in evaluation mode, or calls no module, shows that by its first step, which had no beginning.
From then on calls in evaluation mode begin steps too, or a step begins where an optimizer stepped before.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode, _get_current_dispatch_mode_stack

from ..errors import PlumblineError
from ..verdict import Verdict
from ..watch import Audit
from ..wrappers import unwrapped, unwrapped_optimizer
from .doorway import Doorway
from .observed import follow_compiler, follow_engine, follow_optimizers
from .programs import Optimizers, models_of, parameters_of

log = logging.getLogger("plumbline")

Start = Callable[[list[torch.nn.Module], list[torch.optim.Optimizer], int], Audit]

VERDICT_WAIT_S = 60.0
REPLACED_WAIT_S = 10.0  # For the verdicts of a run that is followed by another.


class Steps:
    """Follows the optimizers of this process from now on. `start(models, optimizers, step)` opens an audit of what is
    trained from that step on. With `wait` the training waits for each verdict. Audited is one thread: the first that
    trains, and after its end the next one. The methods are for the main thread; what they observe is the training's.
    `optimizers` are those that were made before, `first` is the first step's number.
    """

    def __init__(self, start: Start, wait: bool = False, optimizers: Iterable[Any] = (), first: int = 0) -> None:
        self.audits: list[Audit] = []
        self.steps = 0  # Of the thread that is audited.
        self.missed: Counter[str] = Counter()  # Of steps that were to be audited: why they were not.
        self.elsewhere = 0  # Steps of optimizers in other threads.
        self._unfinished: int | None = None  # A step that was open when the program came to its end.
        self.refusal: PlumblineError | None = None
        self._start = start
        self._wait = wait
        self._first = first
        self._audit: Audit | None = None
        self._optimizers = Optimizers()
        for optimizer in optimizers:
            self._optimizers.note(unwrapped_optimizer(optimizer))
        self._trained: list[weakref.ref[torch.optim.Optimizer]] = []  # By the audit, as far as they live.
        self._parameters = 0  # How many these have.
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._thread: threading.Thread | None = None
        self._step: Any = None  # The one that is open,
        self._training: list[torch.optim.Optimizer] = []  # and its optimizers.
        self._ended = False  # An optimizer has stepped in it.
        self._stepped: set[int] = set()  # Optimizers, since gradients were computed.
        self._computed = False  # Gradients, since an optimizer stepped.
        self._in_evaluation = self._end_to_end = False  # What the first step showed.
        self._called_otherwise = ""  # Why a call since the last step began none.
        self._off = False
        self._doorway = Doorway(self._guarded(self._called))
        self._undo = [
            self._optimizers.close,
            follow_optimizers(self._guarded(self._optimizer_starts), self._guarded(self._optimizer_stepped)),
            follow_engine(self._guarded(self._gradients)),
            follow_compiler(self._guarded(self._doorway.compiler_was_loaded)),
        ]
        os.register_at_fork(after_in_child=self._forked)
        self._doorway.open()

    def finish(self, error: BaseException | None) -> None:
        """The program has ended, by an exception or of itself."""
        alive = self._thread is not None and self._thread.is_alive() and not self._mine()
        if self._step is not None and (alive or not self._ended):
            self._drop("unfinished", f"the program {f'raised {type(error).__name__}' if error else 'ended'} within it")
            self._unfinished = self._first + self.steps if error is None else None
        self.steps += self._ended
        self._guarded(self._end)()
        self._off = True
        self._doorway.close()
        for undo in reversed(self._undo):
            undo()

    def flush(self, timeout: float) -> bool:
        """Waits until every step captured so far has its verdict or error; False if `timeout` seconds pass first."""
        return all([audit.flush(timeout) for audit in self.audits])

    def close(self) -> None:
        for audit in self.audits:
            audit.close()

    def verdicts(self) -> list[Verdict]:
        return [verdict for audit in self.audits for verdict in audit.verdicts()]

    def errors(self) -> dict[int, PlumblineError]:
        """By step. A step that was open when the program came to its end is none."""
        found = {step: error for audit in self.audits for step, error in sorted(audit.errors().items())}
        if self._unfinished is not None:
            found.pop(self._unfinished, None)
        return found

    # What the training does.

    def _called(self, module: torch.nn.Module | None) -> None:
        """An outermost module is about to be called."""
        if not self._mine() or (module is not None and next(torch.nn.Module.parameters(module), None) is None):
            return
        if self._ended:
            self._close()
        if self._step is not None or not torch.is_grad_enabled() or torch._C._is_tracing():
            return
        if _get_current_dispatch_mode() is not None:
            self._called_otherwise = "dispatch_mode"
        elif module is None or module.training or self._in_evaluation:
            self._begin()
        else:
            self._called_otherwise = "evaluation_mode"

    def _gradients(self) -> None:
        if self._mine():
            self._computed = True
            self._stepped.clear()

    def _optimizer_starts(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizers.note(optimizer)
        if not self._mine():
            return
        if any(map(callable, (*args, *kwargs.values()))):
            if self._ended:
                self._close()
            if self._step is None and self._doorway.is_open:
                self._begin()

    def _optimizer_stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not self._mine():
            self.elsewhere += 1
            self._optimizers.leave(optimizer)
            if optimizer in self._training:
                self._drop("other_thread", "one of its optimizers stepped in another thread")
            return
        if _is_within_another(sys._getframe(2)):  # Behind the guard: of the optimizer's own step.
            return
        counts = self._computed or id(optimizer) in self._stepped
        self._computed = False
        self._stepped.add(id(optimizer))
        if self._step is not None:
            self._ended = True
            self._doorway.open()
            if self._end_to_end:
                self._close()
        elif counts:
            self._pass()

    def _forked(self) -> None:
        """What follows is the child's, and not audited."""
        self._off = True
        self._doorway.close()

    # Steps.

    def _begin(self) -> None:
        optimizers = list(self._optimizers)
        if not optimizers:
            return
        audit = self._audit_of(optimizers)
        self._doorway.close()
        self._training = optimizers
        missed = audit.missed()
        step = audit.step()
        step.__enter__()
        self._step = step
        if audit.missed() > missed:
            self.missed[audit.missed_reason] += 1

    def _close(self) -> None:
        if self._end():
            self.steps += 1
            self._expect()

    def _end(self) -> bool:
        """Ends the open step, unless a dispatch mode that was entered within it is still on top of its own."""
        if self._step is None or self._audit is None:
            return False
        if any(self._audit.captures_by(mode) for mode in _get_current_dispatch_mode_stack()[:-1]):
            self._drop("dispatch_mode", "a dispatch mode that was entered within it did not end with it")
            self._doorway.open()
            return False
        step, self._step = self._step, None
        self._ended = False
        step.__exit__(None, None, None)
        if self._wait:
            self._audit.flush(VERDICT_WAIT_S)
        self._audit.follow([], [])  # What is trained lives no longer than it would by itself.
        self._training = []
        return True

    def _pass(self) -> None:
        """A step that was not audited has ended."""
        self.steps += 1
        if self._audit is not None:
            self._audit.skip()
        if self._doorway.is_open:
            self.missed[self._called_otherwise or "no_module_called"] += 1
            if not self.audits:
                self._in_evaluation = self._called_otherwise == "evaluation_mode"
                self._end_to_end = not self._called_otherwise
        self._expect()

    def _expect(self) -> None:
        """The next step is still to begin."""
        self._called_otherwise = ""
        if self._audit is not None and not self._audit.due:
            self._doorway.close()
            return
        self._doorway.open()
        if self._end_to_end:
            self._begin()

    def _drop(self, reason: str, message: str) -> None:
        if self._audit is not None:
            self._audit.drop(reason, message)

    # What is trained.

    def _audit_of(self, optimizers: list[torch.optim.Optimizer]) -> Audit:
        """The audit goes on as long as nothing is added but optimizers and models; otherwise another follows it."""
        trained = [weakref.ref(optimizer) for optimizer in optimizers]
        parameters = sum(1 for optimizer in optimizers for _ in parameters_of(optimizer))
        models = [model for known in self._models if (model := known()) is not None]
        if trained != self._trained or parameters != self._parameters or len(models) < len(self._models):
            found = models_of(optimizers)
            goes_on = (
                trained[: len(self._trained)] == self._trained
                and len(models) == len(self._models)
                and _same(models, found[: len(models)])
            )
            if self._audit is not None and not goes_on:
                self._audit.flush(REPLACED_WAIT_S)
                self._audit.close()
                self._audit = None
            models = found
            self._trained, self._parameters = trained, parameters
            self._models = [weakref.ref(model) for model in models]
        if self._audit is None:
            self._audit = self._start(models, optimizers, self._first + self.steps)
            self.audits.append(self._audit)
        else:
            self._audit.follow(models, optimizers)
        return self._audit

    # Care for the training.

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """What goes wrong in our own code ends the audit, and is no concern of the training's."""

        def guarded(*args: Any) -> None:
            if self._off or torch.compiler.is_compiling():
                return
            try:
                function(*args)
            except Exception as error:
                self._off = True
                self._doorway.close()
                if isinstance(error, PlumblineError):
                    self.refusal = error
                else:
                    log.exception("plumbline: this program is not audited any more")

        return guarded

    def _mine(self) -> bool:
        current = threading.current_thread()
        if self._thread is None or not (self._thread is current or self._thread.is_alive()):
            self._thread = current
            self._optimizers.all_are_back()
        return self._thread is current


def _same(ones: list[torch.nn.Module], others: list[torch.nn.Module]) -> bool:
    return all(unwrapped(one) is unwrapped(other) for one, other in zip(ones, others, strict=True))


def _is_within_another(frame: Any) -> bool:
    """Whether an optimizer's step, in whose frame this is, was called by another optimizer's step."""
    step = frame.f_code
    while (frame := frame.f_back) is not None:
        if frame.f_code is step:
            return True
    return False
