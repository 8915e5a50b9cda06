"""The stream protocol by hand: raw frames out, responses in, credit kept."""

from __future__ import annotations

import queue
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from plumbline.v1 import audit_pb2, audit_pb2_grpc, trace_pb2

WAIT_S_MAX = 60.0
ACKS_KEPT = 64


def frame(**fields: Any) -> audit_pb2.AuditRequest:
    return audit_pb2.AuditRequest(**fields)


def tensor(value: int, sizes: list[int], dtype: int = trace_pb2.DTYPE_FLOAT32, **fields: Any) -> trace_pb2.Tensor:
    """A row-major window on all of a value."""
    strides, stride = [], 1
    for size in reversed(sizes):
        strides.insert(0, stride)
        stride *= max(size, 0)
    return trace_pb2.Tensor(**{"value": value, "dtype": dtype, "sizes": sizes, "strides": strides, **fields})


def data(payload: int, content: bytes, chunk: int = 1 << 20) -> list[audit_pb2.AuditRequest]:
    starts = range(0, max(len(content), 1), chunk)
    return [
        frame(data=trace_pb2.TensorData(payload=payload, offset=at, total=len(content), data=content[at : at + chunk]))
        for at in starts
    ]


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def leaf(value: int, count: int, payload: int, **fields: Any) -> audit_pb2.AuditRequest:
    given = {"value": value, "dtype": trace_pb2.DTYPE_FLOAT32, "count": count, "role": trace_pb2.Leaf.DATA, **fields}
    return frame(leaf=trace_pb2.Leaf(payload=payload, **given))


class StepFrames:
    """The frames of one small whole step: y = x + x, tapped. Tests replace and add frames."""

    def __init__(self, step: int, x: tuple[float, ...] = (1.0, 2.0), y: tuple[float, ...] | None = None) -> None:
        self.step = step
        shape = [len(x)]
        y = tuple(2 * each for each in x) if y is None else y
        add = trace_pb2.Op(name="aten::add.Tensor", phase=trace_pb2.PHASE_FORWARD, source="train.py:7")
        add.arguments.add(name="self", tensor=tensor(1, shape))
        add.arguments.add(name="other", tensor=tensor(1, shape))
        add.arguments.add(name="alpha", integer=1)
        add.results.add(tensor=tensor(2, shape), count=len(x))
        tap = trace_pb2.Tap(name="y", kind=trace_pb2.Tap.VALUE)
        tap.terms.add(tensor=tensor(2, shape), weight=1.0, observed=2)
        self.leaf = leaf(1, len(x), 1)
        self.op = frame(op=add)
        self.tap = frame(tap=tap)
        self.data = [*data(1, floats(*x)), *data(2, floats(*y))]
        self.extra: list[audit_pb2.AuditRequest] = []
        self.missed: list[str] = []
        self.trace_id = ""
        self.outputs = False

    def body(self) -> list[audit_pb2.AuditRequest]:
        return [self.leaf, self.op, self.tap, *self.data, *self.extra]

    def begin(self) -> audit_pb2.AuditRequest:
        begin = audit_pb2.StepBegin(step=self.step, missed=len(self.missed), missed_reasons=self.missed)
        begin.trace_id = self.trace_id
        begin.outputs = self.outputs
        return frame(step_begin=begin)

    def frames(self) -> list[audit_pb2.AuditRequest]:
        return [self.begin(), *self.body(), frame(step_end=audit_pb2.StepEnd(frames=len(self.body()) + 2))]


class Stream:
    """One Audit stream. Responses are read on a thread; the test asks for the next one of a kind."""

    def __init__(self, channel: grpc.Channel, job: audit_pb2.Job | None, **call: Any) -> None:
        self._requests: queue.Queue[bytes | None] = queue.Queue()
        self._changed = threading.Condition()
        self._responses: list[audit_pb2.AuditResponse] = []
        self._ended: grpc.RpcError | None = None
        self._done = False
        self.sent = 0
        audit = channel.stream_stream(
            "/plumbline.v1.AuditService/Audit", response_deserializer=audit_pb2.AuditResponse.FromString
        )
        self.call = audit(iter(self._requests.get, None), **call)
        threading.Thread(target=self._read, daemon=True).start()
        if job is not None:
            self.send(frame(open=audit_pb2.Open(handle=job.handle)))

    def _read(self) -> None:
        ended = None
        try:
            for response in self.call:
                with self._changed:
                    self._responses.append(response)
                    acks = [at for at, each in enumerate(self._responses) if each.HasField("ack")]
                    if len(acks) > ACKS_KEPT:  # An ack says all that earlier ones said.
                        del self._responses[acks[0]]
                    self._changed.notify_all()
        except grpc.RpcError as error:
            ended = error
        with self._changed:
            self._ended, self._done = ended, True
            self._changed.notify_all()

    def send(self, *frames: audit_pb2.AuditRequest) -> None:
        for each in frames:
            self.send_raw(each.SerializeToString())

    def send_raw(self, message: bytes) -> None:
        self.sent += len(message)
        self.wait(lambda: self._done or self.credit() >= self.sent)
        self._requests.put(message)

    def send_without_credit(self, message: bytes) -> None:
        self._requests.put(message)

    def credit(self) -> int:
        return max((each.ack.credit for each in self._responses if each.HasField("ack")), default=0)

    def wait(self, condition: Callable[[], Any]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, WAIT_S_MAX), f"nothing came within {WAIT_S_MAX} s"

    def next(self, kind: str) -> Any:
        """Takes the next verdict, error or control; an ack stays."""
        return getattr(self.next_of(kind), kind)

    def next_of(self, *kinds: str) -> audit_pb2.AuditResponse:
        """Takes the next response of one of these kinds."""

        def place() -> int | None:
            return next(
                (at for at, each in enumerate(self._responses) if any(each.HasField(kind) for kind in kinds)), None
            )

        self.wait(lambda: self._done or place() is not None)
        with self._changed:
            if (at := place()) is not None:
                return self._responses.pop(at)
        raise AssertionError(f"the stream ended without {' or '.join(kinds)}: {self._ended}")

    def received(self) -> None:
        """Waits until the daemon has taken all that was sent."""
        self.wait(lambda: any(each.HasField("ack") and each.ack.received >= self.sent for each in self._responses))

    def durable(self, step: int) -> None:
        """Waits until the daemon says that the step is on disk."""

        def reached() -> bool:
            return any(each.HasField("ack") and each.ack.durable_step >= step for each in self._responses)

        self.wait(reached)

    def close(self) -> grpc.StatusCode:
        """Sends no more and waits for the end."""
        self._requests.put(None)
        return self.end()

    def end(self) -> grpc.StatusCode:
        self.wait(lambda: self._done)
        return self.call.code()

    def violations(self) -> list[tuple[str, str]]:
        """Field violations of the stream's end."""
        self.wait(lambda: self._done)
        trailers = dict(self.call.trailing_metadata())
        return violations(status_pb2.Status.FromString(trailers["grpc-status-details-bin"]))

    def __iter__(self) -> Iterator[audit_pb2.AuditResponse]:
        return iter(list(self._responses))


def violations(status: status_pb2.Status) -> list[tuple[str, str]]:
    found = []
    for detail in status.details:
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(bad):
            found += [(each.field, each.description) for each in bad.field_violations]
    return found


class Client:
    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.service = audit_pb2_grpc.AuditServiceStub(self.channel)

    def open(
        self, run: str = "run", job: str = "job", rank: int = 0, project: str = "default", **fields: Any
    ) -> audit_pb2.Job:
        identity = audit_pb2.Identity(project=project, job=job, run=run, rank=rank)
        return self.service.OpenJob(audit_pb2.OpenJobRequest(identity=identity, **fields))

    def stream(self, run: str = "run", job: str = "job", **fields: Any) -> Stream:
        return Stream(self.channel, self.open(run, job, **fields))

    def close(self) -> None:
        self.channel.close()
