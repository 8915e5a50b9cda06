"""Audits a training run: samples steps, captures them, hands them to the transport, brings verdicts back."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from . import compiler
from . import ranks as ranks_of
from .addresses import addresses
from .budget import checked_budget
from .credentials import Credentials, Tls, checked
from .device import device_profile, settings
from .disabled import NOT_SAMPLED, Disabled, NotSampled
from .errors import PlumblineError, TypeIIError, traced
from .job import open_request
from .pace import Instant, OwnThreads, PacedStep, PaceMeter
from .payload import Pool
from .plan import CaptureFailed
from .probe import ProbeStep
from .recorded import record_default_backend
from .replicas import Replicas
from .scope import Pattern, Patterns, Rotation, checked_scope
from .step import StepCapture
from .taps import Guard, checked_guard, tensors_of
from .trace_id import chosen_trace_id
from .transport import Step, Transport
from .v1 import audit_pb2, verdict_pb2
from .verdict import Verdict
from .wrappers import unwrapped, unwrapped_optimizer

log = logging.getLogger("plumbline")

DEFAULT_SERVER = "unix:///run/plumbline.sock"
OPEN_WAIT_S = 2.0
EXIT_WAIT_S = 2.0
VERDICTS_KEPT_MAX = 4096
MISSED_REASONS_MAX = 64
_NEVER = 1 << 62
_HALVES_FREE = 64 << 20  # Bytes of them that are cheap whatever else a step sends.
_HALVES_MAX = 1 << 30  # Bytes of observed results in 16 bits a step, where the daemon names no limit.
_CHANGED = (
    "since watch() the program changed its arithmetic (set_flush_denormal, fp32_precision and the like), which "
    "the profile was chosen by: call watch() after that, or give profile="
)


class _SampledStep:
    """One audited step."""

    __slots__ = ("_audit", "_capture", "_number", "_trace_id")

    def __init__(self, audit: Audit, capture: StepCapture, number: int, trace_id: str) -> None:
        self._audit = audit
        self._capture = capture
        self._number = number
        self._trace_id = trace_id

    def __enter__(self) -> None:
        self._capture.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._capture.__exit__(kind, error, trace)
        self._audit._captured(self._number, self._capture, self._trace_id)


class Audit:
    """An audited run; made by `watch`. Its methods are for the training thread."""

    def __init__(
        self,
        models: list[torch.nn.Module],
        optimizers: list[Any],
        server: str,
        request: audit_pb2.OpenJobRequest,
        every: int,
        first_step: int,
        outputs: bool,
        on_type_ii: str,
        automatic_taps: bool = True,
        scope: Patterns | Rotation | None = None,
        credentials: Credentials | None = None,
        arithmetic: tuple[object, ...] | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        self._arithmetic = arithmetic  # What the profile was chosen by; None: the user named it.
        self._ranks = max(request.ranks, 1)
        self._replicas = replicas or Replicas((), (), 1)
        self._models = models
        self._scope = scope
        own = OwnThreads()
        self._pace = PaceMeter(own) if request.HasField("budget") else None
        self._sampled = first_step  # The last step that was.
        self._optimizers = optimizers
        self._every = every
        self._step = first_step
        self._due = first_step
        self._next = self._due  # Steps before it leave step() after one comparison.
        self._outputs = self._outputs_by_user = outputs
        self._outputs_next = False
        self._too_large = False  # With outputs, for the daemon.
        # Whether results in 16 bits are observed: their roundings, carried through a step, leave little to ask. The
        # first step always does; it shows what that costs.
        self._halves = True
        self._on_type_ii = on_type_ii
        self._automatic_taps = automatic_taps
        self._guards: dict[str, Guard] = {}
        self._states: dict[str, Any] = {}
        self._alarm: Verdict | None = None
        self._unprobed = True  # Whether the steps compile, or run what is out of sight, is yet to be seen.
        self._capture: StepCapture | None = None
        self._pool = Pool()
        self._missed: deque[str] = deque(maxlen=MISSED_REASONS_MAX)
        self._missed_count = 0
        self._lock = threading.Lock()
        self._verdicts: deque[Verdict] = deque(maxlen=VERDICTS_KEPT_MAX)
        self._errors: dict[int, PlumblineError] = {}
        self._listeners: list[Callable[[Verdict], None]] = []
        self.identity = request.identity
        self._transport: Transport | None = Transport(
            server, request, self._on_verdict, self._on_error, self._control, self._pool, own, credentials
        )
        _open.add(self)

    def step(self, trace_id: str | None = None) -> NotSampled | ProbeStep | _SampledStep | PacedStep:
        """Context manager around one training step. Under on_type_ii="raise", raises TypeIIError if an earlier step
        was found TYPE_II since. `trace_id` names the step, where it is audited, in logs and in its verdict: a W3C
        trace-id, 32 lowercase hexadecimal digits that are not all 0. Without it, or where it is none (errors() says
        so), the step has a new one."""
        number = self._step
        self._step = number + 1
        pace = self._pace
        if pace is None:
            return NOT_SAMPLED if number < self._next else self._begin(number, trace_id)
        self._measure(pace)
        return PacedStep(pace, NOT_SAMPLED if number < self._next else self._begin(number, trace_id))

    @property
    def judged_together(self) -> bool:
        """Whether other ranks have a part in the verdicts."""
        return self._ranks > 1

    @property
    def due(self) -> bool:
        """Whether step() has more to do for the next step than to count it, as skip() does."""
        return self._pace is not None or self._step >= self._next

    def skip(self) -> None:
        """Counts a step that runs outside of step()."""
        self._step += 1

    def follow(self, models: Iterable[torch.nn.Module], optimizers: Iterable[Any]) -> None:
        """What the following steps train, in place of what watch() was given."""
        self._models = [unwrapped(model) for model in models]
        self._optimizers = [unwrapped_optimizer(optimizer) for optimizer in optimizers]

    def captures_by(self, mode: Any) -> bool:
        """Whether this is the dispatch mode of the step that is running."""
        return self._capture is not None and self._capture.recorder is mode

    @property
    def missed_reason(self) -> str:
        """Why the last of the missed() was dropped."""
        return self._missed[-1] if self._missed else ""

    def drop(self, reason: str, message: str) -> None:
        """Gives up the step that is running; it counts as missed, and errors() says why."""
        if self._capture is not None:
            self._capture.drop(CaptureFailed(reason, message))

    def tap(self, name: str, tensor: torch.Tensor) -> None:
        """Names a result of this step to be judged, with its present content. Does nothing on other steps."""
        if self._capture is not None:
            self._capture.tap(name, tensor)

    def guard(self, name: str, minimum: float | None = None, maximum: float | None = None) -> None:
        """Declares that every element of the tap lies in [minimum, maximum], from the next sampled step on. Where
        rounding alone breaks that, or can, the verdict says so among its hazards. A sampled step without such a tap is
        missed (unknown_tap). Raises PlumblineError where a limit is not finite or minimum > maximum."""
        self._guards[name] = checked_guard(name, minimum, maximum)

    def state(self, name: str, holder: Any) -> None:
        """Names what lives beside the watched models and optimizers: a tensor, a module (averaged weights), or a dict
        or list of either. From the next sampled step on, what a step makes of it is judged as "state:NAME...", and what
        changes it between steps is found, as for parameters and buffers. Raises PlumblineError where it holds no
        tensor."""
        if not any(True for _ in tensors_of(name, holder)):
            raise PlumblineError(f"state {name!r}: expected a tensor, a module, or a dict or list of them")
        self._states[name] = holder

    def reference(self, values: Mapping[str, torch.Tensor | float]) -> None:
        """Gives bare reference values of this step's taps, by name. Does nothing on other steps."""
        if self._capture is not None:
            self._capture.reference(values)

    @property
    def sampled(self) -> bool:
        """Whether the step that is running is captured: for references that are costly to compute."""
        return self._capture is not None

    def on_verdict(self, listener: Callable[[Verdict], None]) -> None:
        """Calls `listener` with each verdict, on the transport's thread. What it raises is logged."""
        with self._lock:
            self._listeners.append(listener)

    def verdicts(self) -> list[Verdict]:
        """Verdicts received so far, in order of arrival; the last 4096."""
        with self._lock:
            return list(self._verdicts)

    def errors(self) -> dict[int, PlumblineError]:
        """Steps that could not be captured, or that the daemon could not judge, and why; and steps in which a
        definition could not be followed, so that its operation was judged as one that is not known (see define)."""
        with self._lock:
            return dict(self._errors)

    def missed(self) -> int:
        """Sampled steps that were dropped since the last one that was sent."""
        return self._missed_count

    def flush(self, timeout: float | None = 60.0) -> bool:
        """Waits until every step captured so far has its verdict or error; False if `timeout` seconds pass first."""
        return self._transport is None or self._transport.wait_answered(timeout)

    def close(self, timeout: float = EXIT_WAIT_S) -> None:
        """Waits at most `timeout` seconds until what is queued is received, and ends the audit."""
        transport, self._transport = self._transport, None
        self._next = _NEVER
        _open.discard(self)
        self._replicas.close()
        if transport is not None:
            transport.close(timeout)

    def __enter__(self) -> Audit:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    # Training thread.

    def _measure(self, pace: PaceMeter) -> None:
        transport = self._transport
        pace.begins(Instant.now(), transport is None or transport.idle())
        known = pace.take()
        if known is not None and transport is not None:
            sample, cost_seconds, step_seconds = known
            transport.report(
                audit_pb2.Pace(
                    step=sample.step,
                    steps=pace.steps,
                    since=pace.since,
                    step_seconds=step_seconds,
                    cost_seconds=cost_seconds,
                    bytes=sample.bytes,
                    slice=sample.slice,
                    rotating=isinstance(self._scope, Rotation),
                )
            )

    def _begin(self, number: int, trace_id: str | None) -> NotSampled | ProbeStep | _SampledStep:
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            self._next = self._due
            raise TypeIIError(f"step {alarm.step}: {alarm}")
        transport = self._transport
        if transport is None:
            self._next = _NEVER
            return NOT_SAMPLED
        outputs, self._outputs_next = self._outputs or self._outputs_next, False
        self._due = self._next = number + self._every
        for lost in transport.take_lost():
            self._miss(lost)
        reason = "capture_nested" if self._capture is not None else transport.room()
        if not reason and number <= transport.last_durable_step:
            reason = "already_judged"  # A run that started again under its old name.
            if reason not in self._missed:  # Said once: they are sent with the next step that is audited.
                text = "plumbline: up to step %d the run was judged before; these steps are not audited again"
                log.warning(text, transport.last_durable_step)
        if transport.refusal is not None:
            self.close(0)
            return NOT_SAMPLED
        if not reason:
            changed = self._arithmetic is not None and self._arithmetic != settings()
            reason, why = ("arithmetic_changed", _CHANGED) if changed else self._replicas.unseen_hook()
            if reason:
                self._note_error(number, PlumblineError(f"not captured: {why}"))
                log.warning("plumbline: step %d not audited (%s): %s", number, reason, why)
        if reason:
            self._miss(reason)
            return NOT_SAMPLED
        if self._unprobed and compiler.in_use():
            return ProbeStep(self._probed)
        assert transport.plan is not None
        part = None if self._scope is None else self._scope.choose()
        self._sampled = number
        if self._pace is not None:
            self._pace.sampled(number, 1.0 if part is None else part.share)
        capture = StepCapture(
            transport.plan,
            self._pool,
            self._models,
            self._optimizers,
            outputs,
            self._automatic_taps,
            self._guards,
            self._states,
            part=part,
            ranks=self._ranks,
        )
        if self._halves and not outputs:
            limit = transport.plan.step_bytes_max
            capture.recorder.halves.room = limit // 4 if limit else _HALVES_MAX
        self._capture = capture
        named = chosen_trace_id(trace_id, lambda error: self._on_error(number, error))
        return _SampledStep(self, capture, number, named)

    def _captured(self, number: int, capture: StepCapture, trace_id: str) -> None:
        self._capture = None
        if self._pace is not None:
            self._pace.captured(capture.recorder.arena.bytes)
        if capture.failure is not None:
            self._miss(capture.failure.reason)
            self._note_error(number, PlumblineError(f"not captured: {capture.failure}"))
            if capture.failure.reason == "compiled_region":
                self._refuse_compiled(capture.unknown_backend)
            return
        if capture.errors:
            self._on_error(number, PlumblineError("; ".join(capture.errors)))
        transport = self._transport
        limit = transport.plan.step_bytes_max if transport is not None and transport.plan is not None else 0
        if transport is None or (limit and capture.recorder.arena.bytes > limit):
            if transport is not None:
                log.warning(
                    "plumbline: step %d not audited: %d bytes, and the daemon takes at most %d",
                    number,
                    capture.recorder.arena.bytes,
                    limit,
                )
                self._miss("step_bytes_max")
                self._halves = False
                if capture.recorder.outputs and not self._outputs_by_user:
                    self._outputs, self._too_large = False, True  # Rather with open answers than with none.
            capture.records.clear()
            capture.recorder.arena.release()
            return
        self._replicas.settle(capture.records)
        free = max(_HALVES_FREE, capture.recorder.arena.bytes // 2)
        self._halves = self._halves and capture.recorder.halves.bytes <= free
        reasons = list(self._missed)
        if self._scope is not None:
            self._scope.audited()
        transport.send(
            Step(
                number,
                capture.records,
                capture.recorder.arena,
                capture.recorder.outputs or capture.recorder.halves.bytes > 0,
                self._missed_count,
                reasons,
                capture.scope(self._models),
                trace_id,
            )
        )
        self._missed.clear()
        self._missed_count = 0

    def _probed(self, compiled: bool, unknown_backend: str) -> None:
        self._unprobed = compiled  # What is called for the first time is never called under a capture.
        if unknown_backend:
            self._miss("compiled_region")
            self._refuse_compiled(unknown_backend)
        else:
            self._due = self._next = self._step

    def _refuse_compiled(self, backend: str) -> None:
        log.warning(
            "plumbline: this run uses torch.compile with backend %r, which computes out of sight: its steps are not"
            " audited; torch.compile(backend=plumbline.compile_backend(...)) records what it computes",
            backend,
        )
        self._due = self._next = _NEVER

    def _miss(self, reason: str) -> None:
        self._missed.append(reason)
        self._missed_count += 1

    # Transport's thread.

    def _on_verdict(self, message: verdict_pb2.Verdict) -> None:
        verdict = Verdict(message)
        with self._lock:
            self._verdicts.append(verdict)
            listeners = list(self._listeners)
        if verdict.verdict == "TYPE_II":
            if self._on_type_ii == "raise":
                self._alarm = verdict
                self._next = -1
            elif self._on_type_ii == "log":
                log.warning("plumbline: step %d: %s%s", message.step, verdict.one_line(), traced(message.trace_id))
        for listener in listeners:
            try:
                listener(verdict)
            except Exception:
                log.exception("plumbline: a verdict listener raised")

    def _on_error(self, step: int, error: PlumblineError) -> None:
        self._note_error(step, error)
        log.warning("plumbline: step %d not judged as asked: %s%s", step, error, traced(error.trace_id))

    def _note_error(self, step: int, error: PlumblineError) -> None:
        with self._lock:
            self._errors[step] = error
            while len(self._errors) > VERDICTS_KEPT_MAX:
                self._errors.pop(next(iter(self._errors)))

    def _control(self, control: audit_pb2.Control) -> None:
        # Ranks sample the same steps, and are told at different times.
        if control.every > 0 and self._ranks == 1:
            self._every = control.every
            if self._next not in (-1, _NEVER):
                self._due = self._next = max(self._sampled + control.every, self._step)
        if control.slice > 0 and isinstance(self._scope, Rotation):
            self._scope.share = control.slice
        if control.outputs and not self._too_large:
            self._outputs = True
        if control.outputs_next:
            self._outputs_next = True
            if self._ranks == 1:
                self._next = -1


def watch(
    model: torch.nn.Module | list[torch.nn.Module],
    optimizer: Any = None,
    server: str | None = None,
    *,
    job: str,
    run: str | None = None,
    project: str = "default",
    rank: int | None = None,
    ranks: int | None = None,
    ranks_here: Iterable[int] | None = None,
    every: int = 100,
    first_step: int = 0,
    reference: str | None = None,
    keep_trace: bool | None = None,
    profile: str | None = None,
    alpha: float | None = None,
    capture: str = "leaves",
    on_type_ii: str = "log",
    golden: str | None = None,
    record_golden: str | None = None,
    scope: str | Iterable[Pattern] | None = None,
    budget: float | str | tuple[float, str] | None = None,
    token: str | None = None,
    tls: bool | str | os.PathLike[str] | Tls | None = None,
) -> Audit | Disabled:
    """Starts the audit of a training run.

    model, optimizer: one or a list of each. server: a gRPC address such as "unix:///run/plumbline.sock", or up to 16 of
    them with commas between, of which the first that answers is taken, and the next one when that goes away; by default
    $PLUMBLINE_SERVER. run: fresh unless given. every: audit one step in so many, the first one among them. first_step:
    number of the first step, for runs that resume. reference: the run to pair with, "run" of the same job or "job/run".
    keep_trace: this run may be another's reference; by default, unless it has a reference itself.
    profile: arithmetic of the device, a name that the daemon knows; by default chosen by device and flags (device.py).
    alpha: probability, in (0, 1), that rounding alone is ever flagged by a statistical envelope in this run; by default
    0.001. capture: "leaves", or "outputs" to send the output of every operation. on_type_ii: "log", "raise"
    (TypeIIError at the entry of a later step) or "ignore".
    ranks: how many ranks of this run are judged together, one verdict for all; by default the world size where
    torch.distributed is initialised, otherwise 1. They must stream to one daemon and sample the same steps. Their
    collectives are audited from all ranks' inputs. The ranks agree on `run` where it is not given. Where every watched
    parameter is one of a DistributedDataParallel over all ranks, they must stay equal; no longer, once an optimizer
    stepped on gradients that were not reduced (no_sync), or by hooks that may give each rank others.
    ranks_here: those of `ranks` that stream to the daemon that this one streams to, where others stream to others; by
    default this node's, as torchrun tells them. They get a verdict of their own: what came from the others is taken as
    it was received, what is sent to them is judged. Where their daemons share a history, that has a verdict of all
    ranks, too, of rank -1, which `plumb` shows and nothing here answers. There is no reference or golden run for them:
    with one, each rank of a run on several nodes is judged by itself.
    record_golden: keep what later runs need to be judged against this one, under this name. golden: the name of such a
    run, of the same project, in place of a reference: the same steps must be sampled, on the same parameters, state and
    data; a step whose leaves differ is an error (errors()) that names the first one.

    scope: audit a part of each sampled step, for models too large to audit whole. Patterns of module paths as in
    named_modules() (shell patterns such as "layers.3" or "*.attn", or compiled regular expressions), each with what
    lies inside; or "rotate": another slice of the modules at each sampled step, so that all have their turn. Audited
    are these modules' operations, forward and backward; always too those that run outside of modules or in the
    outermost one alone (the loss, its normalisation, clipping), and the optimizer's path of these modules' parameters.
    What comes into that from elsewhere is taken as observed; what leaves it is judged. Other modules run untouched.

    budget: what auditing may cost: a share of the training's time such as 0.02, bytes per second such as "50MB/s", or
    both in a tuple. The daemon then decides how often steps are sampled, and how much of the models rotates, from what
    the sampled steps cost; `every` holds until its first decision.

    token: bearer token, for a daemon that asks for one; by default $PLUMBLINE_TOKEN, or what the file
    $PLUMBLINE_TOKEN_FILE holds. tls: True, the file of the authorities that the daemon's certificate is held against,
    or Tls(ca, certificate, key); by default what $PLUMBLINE_TLS_CA, _CERT and _KEY name, and none without these. On a
    unix socket neither is needed.

    On a unix socket the daemon reads what was captured from shared memory, where it can (PLUMBLINE_SHARED_MEMORY=0: it
    does not). Training goes on where the daemon is away; raises PlumblineError where it refuses the job.
    """
    if os.environ.get("PLUMBLINE_DISABLE", "") not in ("", "0"):
        return Disabled()
    record_default_backend()
    for name, value, allowed in (
        ("capture", capture, ("leaves", "outputs")),
        ("on_type_ii", on_type_ii, ("log", "raise", "ignore")),
    ):
        if value not in allowed:
            raise PlumblineError(f"{name}: expected one of {', '.join(allowed)}, found {value!r}")
    if every < 1:
        raise PlumblineError(f"every: expected 1 or more, found {every}")
    judged = ranks_of.judged_ranks(ranks, ranks_here, rank, pairs=bool(reference or golden or record_golden))
    given = model if isinstance(model, (list, tuple)) else [model]
    models = [unwrapped(item) for item in given]
    optimizers = [] if optimizer is None else list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    optimizers = [unwrapped_optimizer(item) for item in optimizers]
    part = checked_scope(models, scope)
    if part is not None and (golden or record_golden):
        raise PlumblineError("scope: expected none beside golden or record_golden: their steps are whole")
    if isinstance(part, Rotation) and reference:
        raise PlumblineError('scope: expected patterns beside reference, found "rotate": slices of two runs differ')
    limits = checked_budget(budget)
    if keep_trace is None:
        keep_trace = reference is None and golden is None and not judged.here
    replicas = Replicas(given, optimizers, judged.of_run)
    request = open_request(
        project,
        job,
        run or (ranks_of.agreed_run(project, job) if judged.of_run > 1 else "") or uuid.uuid4().hex[:12],
        ranks_of.own_rank() if rank is None else rank,
        reference,
        keep_trace,
        profile or device_profile(parameter.device for item in models for parameter in item.parameters()),
        alpha,
        golden,
        record_golden,
        limits,
        judged.of_run,
        replicas.promised,
        judged.here,
    )
    credentials = checked(token, tls)
    server = server or os.environ.get("PLUMBLINE_SERVER") or DEFAULT_SERVER
    for address in addresses(server):
        credentials.check(address)
    audit = Audit(
        models,
        optimizers,
        server,
        request,
        every,
        first_step,
        capture == "outputs",
        on_type_ii,
        scope=part,
        credentials=credentials,
        arithmetic=None if profile else settings(),
        replicas=replicas,
    )
    assert audit._transport is not None
    try:
        audit._transport.wait_open(OPEN_WAIT_S)
    except PlumblineError:
        audit.close(0)
        raise
    return audit


_open: weakref.WeakSet[Audit] = weakref.WeakSet()


def _at_exit() -> None:
    for audit in list(_open):
        audit.close()


def _after_fork() -> None:
    """Threads do not survive a fork: the child's audits end silently."""
    for audit in list(_open):
        audit._transport = None
        audit._next = _NEVER
        audit.drop("forked", "the step is another process's")
    _open.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
