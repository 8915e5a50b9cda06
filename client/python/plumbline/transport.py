"""Carries captured steps to the daemon and verdicts back, on threads of its own: the training thread never waits."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from . import cuda, older, shared
from .addresses import addresses
from .credentials import Credentials, checked
from .encode import batched, device_frame, encode_step, open_frame, region_frame
from .errors import PlumblineError, traced
from .pace import OwnThreads
from .payload import Arena, Pool
from .plan import Plan
from .statuses import from_rpc_error, from_status, retry_delay
from .trace_id import new_trace_id
from .v1 import audit_pb2, verdict_pb2

log = logging.getLogger("plumbline")

OPEN_TIMEOUT_S = 10.0
BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 5.0
RESPONSE_BYTES_MAX = 64 << 20
QUEUED_STEPS_MAX = 4
QUEUED_BYTES_MAX = 2 << 30
# Steps that were received but not yet judged are kept for a resend, as long as there is room.
RETAINED_STEPS_MAX = 4
RETAINED_BYTES_MAX = 1 << 30
# A step that the daemon could not store is sent again after such a time.
RETRY_S_MIN = 0.05
RETRY_S_MAX = 60.0
# A step is not sent to a daemon after so many others went away while they had it: it may be what ended them.
LOSSES_MAX = 2
# A daemon whose machine is gone ends no connection. It is missed when it has acknowledged nothing of what was sent to
# it for the timeout, or no ping. Pings more often than every 5 minutes would be taken for an attack.
KEEPALIVE_MS = 330_000
KEEPALIVE_TIMEOUT_MS = 20_000

_REFUSALS = {
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
}


@dataclass
class Step:
    """A captured step on its way."""

    step: int
    records: list[tuple[Any, ...]]
    arena: Arena
    outputs: bool = False
    missed: int = 0
    missed_reasons: list[str] = field(default_factory=list)
    scope: audit_pb2.Scope | None = None
    trace_id: str = field(default_factory=new_trace_id)
    end: int = 0  # Bytes of the stream up to its StepEnd; 0: not yet sent on this stream.
    received: bool = False
    resend_at: float | None = None  # time.monotonic() at which the daemon wants it again; None: it does not.
    unstored: PlumblineError | None = None  # What the daemon said then.
    losses: int = 0  # How many daemons went away while they had it.


class Transport:
    """One stream of one rank. Thread-safe. The first of the addresses where a daemon answers is taken; when that daemon
    goes away, the next one is, and what has no answer yet is sent to it.

    `on_verdict` and `on_error` are called on the transport's thread; what they raise is logged. Where the daemon can
    read this process's memory, the pool's new blocks are shared with it.
    """

    def __init__(
        self,
        server: str,
        request: audit_pb2.OpenJobRequest,
        on_verdict: Callable[[verdict_pb2.Verdict], None],
        on_error: Callable[[int, PlumblineError], None],
        on_control: Callable[[audit_pb2.Control], None],
        pool: Pool | None = None,
        own: OwnThreads | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._own = own or OwnThreads()
        self._addresses = addresses(server)
        self._at = 0  # Of them the one that is tried, or taken.
        self._taken = ""  # The last one that took the run; empty: none yet.
        self._faults: dict[str, str] = {}  # By address: why it was left, or not taken.
        self._credentials = checked() if credentials is None else credentials
        self._request = request
        self._pool = pool
        self._shared_epoch = -1  # The stream whose daemon reads the pool's shared memory.
        self._device_answered = (
            self._device_epoch
        ) = -1  # The same of its memory on a device; the stream that was asked.
        self._callbacks = (on_verdict, on_error, on_control)
        self._changed = threading.Condition()
        self._queue: deque[Step] = deque()  # Not yet sent.
        self._flying: deque[Step] = deque()  # Sent, or being sent; not yet answered.
        self._retired: deque[Step] = deque()  # Answered while being sent: the sender lets go of them.
        self._unanswered: dict[int, list[str]] = {}  # By step: why those were missed that it tells of.
        self._paces: deque[audit_pb2.Pace] = deque(maxlen=8)
        self._closing = False
        self._closed = False  # What has no answer yet is given up.
        self._reopening = False  # The daemon ended a stream without fault, and another is about to be opened.
        self._call: Any = None
        self._credit = 0
        self._sent = 0
        self._epoch = 0  # Counts streams: a sender of an earlier one stops.
        self._failures = 0  # Since a daemon took the run.
        self._answers = 0
        self._lost: list[str] = []
        self.plan: Plan | None = None
        self.connected = False
        self.refusal: PlumblineError | None = None  # The daemon refused the job: there will be no stream.
        self.last_durable_step = -1
        self._thread = threading.Thread(target=self._run, name="plumbline", daemon=True)
        self._thread.start()

    # For the training thread.

    def wait_open(self, timeout: float) -> bool:
        """Waits until the daemon has answered for the first time. Raises its refusal."""
        with self._changed:
            tried = len(self._addresses)
            self._changed.wait_for(
                lambda: self.plan or self.refusal or self._failures >= tried or self._closing, timeout
            )
            if self.refusal:
                raise self.refusal
            return self.plan is not None

    def room(self) -> str:
        """Empty if a step may be captured now; otherwise the reason why not."""
        with self._changed:
            if self.plan is None or not (self.connected or self._reopening):
                return "disconnected"
            unstored = (step for step in self._flying if step.resend_at is not None or not step.received)
            waiting = [*self._queue, *unstored]
            if len(waiting) >= QUEUED_STEPS_MAX or sum(step.arena.bytes for step in waiting) >= QUEUED_BYTES_MAX:
                return "queue_full"
        return ""

    def take_lost(self) -> list[str]:
        """Why steps have no verdict, one reason for each, since the last call: those that were sent and then lost, and
        those that the lost ones would have reported as missed."""
        with self._changed:
            lost, self._lost = self._lost, []
            return lost

    def idle(self) -> bool:
        """Whether every step that was sent has its answer."""
        return not self._unanswered

    def report(self, pace: audit_pb2.Pace) -> None:
        """Tells the daemon what a sampled step cost, between steps. Lost with the stream."""
        with self._changed:
            self._paces.append(pace)
            self._changed.notify_all()

    def want(self, wanted: Iterable[tuple[str, bool]]) -> None:
        """Steps that are captured from now on hold the results of these operations."""
        with self._changed:
            if self.plan is not None:
                self.plan = self.plan.wanting(wanted)

    def send(self, step: Step) -> None:
        with self._changed:
            self._queue.append(step)
            unnamed = ["other"] * (step.missed - len(step.missed_reasons))
            self._unanswered[step.step] = [*step.missed_reasons, *unnamed]
            self._changed.notify_all()

    def wait_answered(self, timeout: float | None) -> bool:
        """Waits until every step sent so far has its verdict or error."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unanswered or self.refusal is not None, timeout)

    def close(self, timeout: float) -> None:
        """Sends what is queued, waits at most `timeout` seconds for the answers, and ends the stream."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            if threading.current_thread() is not self._thread:
                # What the daemon holds of a device is ours again when it has ended the stream.
                held = self._pool is not None and self._pool.device is not None

                def over() -> bool:
                    return not (self.connected or self._reopening) or not (self._unanswered or held)

                self._changed.wait_for(over, timeout)
            self._closed = True
            self._epoch += 1
            self._changed.notify_all()
            call = self._call
            given_up = [step for step in self._flying if step.unstored is not None]
        for step in given_up:
            _guarded(self._callbacks[1], step.step, step.unstored)
        if call is not None:
            call.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)

    # The transport's own thread.

    def _run(self) -> None:
        options = [
            ("grpc.max_receive_message_length", RESPONSE_BYTES_MAX),
            ("grpc.enable_http_proxy", 0),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        attempts = 0  # Since a step was answered.
        while not self._closed and (self._reopening or not self._closing):
            answers, leave = self._answers, False
            try:
                with self._credentials.channel(self._addresses[self._at], options) as channel:
                    self._stream(channel)
            except grpc.RpcError as error:
                refused = self.plan is None and error.code() in _REFUSALS
                # What a daemon finds wrong with a stream that it took, another one would find too.
                leave = not (self.connected and error.code() in _REFUSALS)
                self._disconnected(error, refused, leave)
                if refused:
                    return
            except PlumblineError as error:  # Of a file that was readable before.
                self._disconnected(error, refused=False, leave=True)
            except Exception as error:
                log.exception("plumbline: transport failed")
                self._disconnected(error, refused=False, leave=False)
            attempts = 1 if self._answers != answers or self._reopening else attempts + 1
            rounds, rest = divmod(attempts, len(self._addresses))
            if leave:
                self._at = (self._at + 1) % len(self._addresses)
                if rest:
                    continue  # Others have not been tried yet.
            backoff = min(BACKOFF_S_MIN * 2 ** min(max(rounds - 1, 0), 16), BACKOFF_S_MAX)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, backoff * random.uniform(0.5, 1.0))

    def _disconnected(self, error: Exception, refused: bool, leave: bool) -> None:
        address = self._addresses[self._at]
        with self._changed:
            was_connected, self.connected, self._reopening = self.connected, False, False
            self._epoch += 1
            self._failures += 1
            if was_connected and leave:
                for step in self._flying:
                    step.losses += 1
            if refused:
                self.refusal = from_rpc_error(error)
            self._changed.notify_all()
        if self._closing:
            return
        text = str(from_rpc_error(error)) if isinstance(error, grpc.RpcError) else str(error)
        self._faults[address] = text
        several = len(self._addresses) > 1
        if refused:
            log.error("plumbline: the daemon at %s refused the job: %s", address, text)
        elif several and leave and self._failures == len(self._addresses):
            faults = "; ".join(f"{address}: {text}" for address, text in self._faults.items())
            log.warning("plumbline: no daemon takes the run, training goes on unaudited: %s", faults)
        elif (was_connected and not leave) or (not several and self._failures == 1):
            log.warning("plumbline: no daemon at %s, training goes on unaudited: %s", address, text)

    def _taken_by(self, address: str, last_durable_step: int) -> None:
        """Says so where a run goes on without what its daemon knew: at another one, or one that has lost it."""
        before, self._taken = self._taken, address
        self._failures = 0
        if not before or (before == address and last_durable_step >= self.last_durable_step):
            return
        known = f"the steps up to {last_durable_step}" if last_durable_step >= 0 else "none of its steps"
        log.warning(
            "plumbline: the run goes on at %s, which has %s; the rest of its history, up to step %d, is where it ran"
            " before (%s: %s). A reference and a golden run must be there, or in a history that both share",
            address,
            known,
            self.last_durable_step,
            before,
            self._faults.get(before, "the connection ended"),
        )

    def _stream(self, channel: grpc.Channel) -> None:
        """Runs one stream to its end; raises grpc.RpcError."""
        open_job = channel.unary_unary(
            "/plumbline.v1.AuditService/OpenJob",
            request_serializer=audit_pb2.OpenJobRequest.SerializeToString,
            response_deserializer=audit_pb2.Job.FromString,
        )
        metadata = self._credentials.metadata()
        job = open_job(self._request, timeout=OPEN_TIMEOUT_S, metadata=metadata)
        older.tell(channel, metadata, self._request, self._addresses[self._at])
        audit = channel.stream_stream(
            "/plumbline.v1.AuditService/Audit",
            request_serializer=None,  # Messages come serialized.
            response_deserializer=audit_pb2.AuditResponse.FromString,
        )
        plan = plan_of(job.plan)
        self._share(plan)
        self._taken_by(self._addresses[self._at], job.last_durable_step)
        with self._changed:
            # What was asked for on an earlier stream is wanted still, whatever the daemon remembers.
            self.plan = plan if self.plan is None else plan.wanting(self.plan.wanted)
            self.last_durable_step = max(self.last_durable_step, job.last_durable_step)
            given_up = self._rewind()
            self._epoch += 1
            self._credit = self._sent = 0
            if self._closed or (self._closing and not self._reopening):
                return
            call = self._call = audit(self._requests(job.handle, self._epoch), metadata=metadata)
            self.connected, self._reopening = True, False
            self._changed.notify_all()
        for number in given_up:
            lost = f"given up: {LOSSES_MAX} daemons went away while they had it"
            _guarded(self._callbacks[1], number, PlumblineError(lost, "UNAVAILABLE"))
        for response in call:
            self._respond(response)
            self._own.count()
        # The daemon has ended the stream, and let go of the device's memory before it did.
        if self._closing and self._pool is not None and self._pool.device is not None and not self._flying:
            self._pool.device.free()
        with self._changed:
            # Of an age that --connection-age allows no more, for one.
            self.connected, self._reopening = False, bool(self._unanswered) or not self._closing
            self._epoch += 1
            self._changed.notify_all()

    def _share(self, plan: Plan) -> None:
        if self._pool is None or not plan.region_chunk_bytes_max or not shared.wanted():
            return
        self._pool.staging_bytes = cuda.wanted() if plan.cuda_regions else 0
        try:
            self._pool.share()
        except OSError as error:
            log.info("plumbline: no shared memory, steps go as messages: %s", error)

    def _rewind(self) -> list[int]:
        """Puts the steps of a broken stream back into the queue: the daemon answers those that it knows already with
        the verdict on disk. Steps that were let go of for room, and have no answer, are lost. Returns those that are
        given up, since there are other daemons, as those that had them went away."""
        given_up = []
        for step in reversed(self._flying):
            step.end, step.received, step.resend_at = 0, False, None
            if len(self._addresses) > 1 and step.losses >= LOSSES_MAX:
                step.arena.release()
                given_up.append(step.step)
            else:
                self._queue.appendleft(step)
        self._flying.clear()
        kept = {step.step for step in self._queue}
        for number in [number for number in self._unanswered if number not in kept]:
            self._give_up(number, "disconnected")
        return given_up

    def _requests(self, handle: str, epoch: int) -> Iterator[bytes]:
        """Messages of one stream, on gRPC's sending thread."""
        frame = open_frame(handle)
        with self._changed:
            self._sent = len(frame)
        yield frame
        # What an earlier daemon on this machine was given, one elsewhere cannot read.
        plan, pool = self.plan, self._pool
        memory = pool.shared if pool is not None and plan is not None and plan.region_chunk_bytes_max else None
        if memory is not None:
            frame = region_frame(memory)
            if not self._spend(len(frame), epoch):
                return
            yield frame
        while True:
            with self._changed:
                following = self._next(epoch)
            if following is None:
                return
            if isinstance(following, audit_pb2.Pace):
                frame = audit_pb2.AuditRequest(pace=following).SerializeToString()
                if not self._spend(len(frame), epoch):
                    return
                yield frame
                continue
            step = following
            device = pool.device if pool is not None and plan is not None and plan.cuda_regions else None
            if device is not None and self._device_answered != epoch:
                frame = device_frame(device)
                if not self._spend(len(frame), epoch):
                    return
                yield frame
                with self._changed:
                    self._changed.wait_for(lambda: self._device_answered == epoch or self._epoch != epoch)
            if device is not None:
                device.wait()
            for frame in self._frames(step, memory if self._shared_epoch == epoch else None, epoch):
                if not self._spend(len(frame), epoch):
                    return
                yield frame
            self._own.count()
            with self._changed:
                step.end = self._sent
                if step in self._retired:
                    self._retired.remove(step)
                    step.arena.release()
            if memory is not None and self._shared_epoch == epoch:
                memory.gather()

    def _next(self, epoch: int) -> Step | audit_pb2.Pace | None:
        """Waits for what is to be sent next; None: nothing more on this stream, which stays open until every step has
        its answer, since the daemon may want one again."""
        while self._epoch == epoch:
            if self._paces:
                return self._paces.popleft()
            if (step := self._due()) is not None:
                step.end, step.received, step.resend_at = 0, False, None
                return step
            if self._queue:
                self._flying.append(self._queue.popleft())
                return self._flying[-1]
            if self._closing and not self._unanswered:
                return None
            self._changed.wait(self._until_due())
        return None

    def _due(self) -> Step | None:
        """A sent step that the daemon wants again now. What it could not store comes before what it has not seen."""
        now = time.monotonic()
        due = (step for step in self._flying if step.end and step.resend_at is not None and step.resend_at <= now)
        return next(due, None)

    def _until_due(self) -> float | None:
        """Seconds until the next such step; None: there is none."""
        due = [step.resend_at for step in self._flying if step.end and step.resend_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _frames(self, step: Step, memory: shared.SharedMemory | None, epoch: int) -> Iterator[bytes]:
        """The messages of a step. One that cannot be encoded is given up, and with it the stream that holds a part."""
        assert self.plan is not None
        try:
            frames = encode_step(
                step.records,
                step.step,
                step.outputs,
                step.missed,
                step.missed_reasons,
                step.scope,
                self.plan.chunk_bytes_max,
                memory,
                self.plan.region_chunk_bytes_max,
                self._pool.device if self._pool is not None and self._device_epoch == epoch else None,
                step.trace_id,
            )
            yield from batched(frames, self.plan.batch_bytes_max)
        except Exception as error:
            log.exception("plumbline: step %d cannot be sent", step.step)
            with self._changed:
                for steps in (self._flying, self._queue, self._retired):
                    if step in steps:
                        steps.remove(step)
                self._unanswered.pop(step.step, None)
                self._changed.notify_all()
            step.arena.release()
            _guarded(self._callbacks[1], step.step, PlumblineError(f"the step cannot be sent: {error}"))
            raise

    def _spend(self, size: int, epoch: int) -> bool:
        """Waits for credit. False: the stream has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._sent + size <= self._credit or self._epoch != epoch)
            if self._epoch != epoch:
                return False
            self._sent += size
            return True

    def _respond(self, response: audit_pb2.AuditResponse) -> None:
        on_verdict, on_error, on_control = self._callbacks
        event = response.WhichOneof("event")
        if event == "ack":
            self._acknowledged(response.ack)
        elif event == "verdict":
            self.want(wanted_of(response.verdict))
            self.last_durable_step = max(self.last_durable_step, response.verdict.step)  # It is on disk already.
            _guarded(on_verdict, response.verdict)
            self._answered(response.verdict.step)
        elif event == "error":
            status = response.error.status
            delay = retry_delay(status)
            error = from_status(status)
            error.trace_id = self._trace_id(response.error.step)
            if delay is None or not self._resend(response.error.step, delay, error):
                _guarded(on_error, response.error.step, error)
                self._answered(response.error.step)
        elif event == "region" and response.region.region == cuda.REGION:
            self._device_known(response.region.status)
        elif event == "region":
            if response.region.status.code == 0:
                self._shared_epoch = self._epoch
            else:
                log.info("plumbline: steps go as messages: %s", response.region.status.message)
        elif event == "control":
            _guarded(on_control, response.control)

    def _device_known(self, status: Any) -> None:
        with self._changed:
            self._device_answered = self._epoch
            if status.code == 0:
                self._device_epoch = self._epoch
            elif self._pool is not None and self._pool.device is not None:
                self._pool.device.closed = True
                log.info("plumbline: what is on the device goes through the host: %s", status.message)
            self._changed.notify_all()

    def _acknowledged(self, ack: audit_pb2.Ack) -> None:
        with self._changed:
            self._credit = max(self._credit, ack.credit)
            self.last_durable_step = max(self.last_durable_step, ack.durable_step)
            for step in self._flying:
                step.received = step.received or 0 < step.end <= ack.received
            kept = [step for step in self._flying if step.received]
            while len(kept) > RETAINED_STEPS_MAX or sum(step.arena.bytes for step in kept) > RETAINED_BYTES_MAX:
                step = kept.pop(0)
                self._flying.remove(step)
                step.arena.release()
                if step.resend_at is not None:
                    self._give_up(step.step, "not_stored")
            self._changed.notify_all()

    def _resend(self, number: int, delay: float, error: PlumblineError) -> bool:
        """The daemon could not store a step's answer: it gets the step again. False: it is no longer here, and lost."""
        with self._changed:
            step = next((step for step in self._flying if step.step == number), None)
            if step is None:
                self._give_up(number, "not_stored")
                return False
            if step.unstored is None:
                log.warning("plumbline: step %d is sent again: %s%s", number, error, traced(step.trace_id))
            step.resend_at = time.monotonic() + min(max(delay, RETRY_S_MIN), RETRY_S_MAX)
            step.unstored = error
            self._changed.notify_all()
            return True

    def _trace_id(self, number: int) -> str:
        with self._changed:
            return next((step.trace_id for step in self._flying if step.step == number), "")

    def _give_up(self, number: int, reason: str) -> None:
        if number in self._unanswered:
            self._lost += [reason, *self._unanswered.pop(number)]

    def _answered(self, number: int) -> None:
        with self._changed:
            self._answers += 1
            self._unanswered.pop(number, None)
            for step in [step for step in self._flying if step.step == number]:
                self._flying.remove(step)
                if step.end:
                    step.arena.release()
                else:
                    self._retired.append(step)
            self._changed.notify_all()


def _guarded(function: Callable[..., None], *args: Any) -> None:
    try:
        function(*args)
    except Exception:
        log.exception("plumbline: a callback raised")


def plan_of(plan: audit_pb2.CapturePlan) -> Plan:
    kinds = audit_pb2.Decision
    return Plan(
        plan.lowered_ops,
        (decision.op for decision in plan.decisions if decision.kind == kinds.POSITIVE_SIDE),
        (decision.op for decision in plan.decisions if decision.kind == kinds.RESULT),
        (decision.op for decision in plan.decisions if decision.kind == kinds.LAST_RESULT),
        plan.chunk_bytes_max,
        plan.step_bytes_max,
        plan.region_chunk_bytes_max,
        plan.cuda_regions,
        wanted_of(plan),
        plan.batch_bytes_max,
        plan.carried,
    )


def wanted_of(message: audit_pb2.CapturePlan | verdict_pb2.Verdict) -> set[tuple[str, bool]]:
    """Operations whose results are asked for: by name, and whether they lie inside of compiled regions."""
    return {(result.op, result.fused) for result in message.wanted}
