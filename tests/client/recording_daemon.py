"""The daemon's side of the audit protocol, as far as flow control and bookkeeping go: it records the frames of each
step, checks credit and frame counts, and answers every step with a fixed outcome. It judges nothing."""

import threading
from collections.abc import Callable
from concurrent import futures

import grpc
from google.rpc import error_details_pb2, status_pb2

from plumbline.v1 import audit_pb2, verdict_pb2

SERVICE = "plumbline.v1.AuditService"
WINDOW_BYTES = 4 << 20


class RecordingDaemon:
    def __init__(self, address: str, lowered: tuple[str, ...] = ("aten::mm.default",)) -> None:
        self.address = address
        self.lowered = lowered
        self.requests: list[audit_pb2.OpenJobRequest] = []
        self.steps: list[list[audit_pb2.AuditRequest]] = []  # Frames of each complete step.
        self.resent: list[int] = []
        self.violations: list[str] = []
        self.outcome: Callable[[int], int] = lambda step: verdict_pb2.OUTCOME_TYPE_I
        self.wanted: Callable[[int], list[str]] = lambda step: []  # Operations whose results a step lacks.
        self.refusal: tuple[grpc.StatusCode, str, str] | None = None  # Code, field, description.
        self.step_error = ""
        self.ends: set[int] = set()  # Steps at whose begin the stream ends without fault, once each.
        self.retries: dict[int, int] = {}  # By step: how often it is not stored, and so wanted again.
        self.retry_status = status_pb2.Status()
        self.again: list[list[audit_pb2.AuditRequest]] = []  # Frames of the steps in `resent`.
        self.grant = threading.Event()  # Cleared: credit runs out after the first window.
        self.grant.set()
        self._server: grpc.Server | None = None

    def start(self) -> None:
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        handlers = {
            "OpenJob": grpc.unary_unary_rpc_method_handler(
                self._open, audit_pb2.OpenJobRequest.FromString, audit_pb2.Job.SerializeToString
            ),
            "Audit": grpc.stream_stream_rpc_method_handler(
                self._audit, None, audit_pb2.AuditResponse.SerializeToString
            ),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        """Goes away at once, as a daemon that is killed."""
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    def step_numbers(self) -> list[int]:
        return [step[0].step_begin.step for step in self.steps]

    def _open(self, request: audit_pb2.OpenJobRequest, context: grpc.ServicerContext) -> audit_pb2.Job:
        self.requests.append(request)
        if self.refusal is not None:
            code, field, description = self.refusal
            status = status_pb2.Status(code=code.value[0], message="the job is refused")
            detail = error_details_pb2.BadRequest()
            detail.field_violations.add(field=field, description=description)
            status.details.add().Pack(detail)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(code, status.message)
        done = self.step_numbers()
        return audit_pb2.Job(
            handle="handle",
            identity=request.identity,
            plan=audit_pb2.CapturePlan(lowered_ops=self.lowered, chunk_bytes_max=1 << 20, step_bytes_max=1 << 30),
            last_durable_step=max(done, default=-1),
        )

    def _audit(self, requests, context):
        received, credit = 0, WINDOW_BYTES
        yield audit_pb2.AuditResponse(ack=audit_pb2.Ack(received=0, credit=credit, durable_step=-1))
        frames: list[audit_pb2.AuditRequest] = []
        for message in requests:
            received += len(message)
            if received > credit:
                self.violations.append(f"{received} bytes beyond a credit of {credit}")
            request = audit_pb2.AuditRequest.FromString(message)
            kind = request.WhichOneof("frame")
            if kind == "open":
                continue
            if kind == "data" and len(request.data.data) > 1 << 20:
                self.violations.append(f"a chunk of {len(request.data.data)} bytes")
            if kind == "step_begin" and request.step_begin.step in self.ends:
                self.ends.remove(request.step_begin.step)
                return
            frames.append(request)
            if self.grant.is_set() and credit - received < WINDOW_BYTES // 2:
                credit = received + WINDOW_BYTES
                yield audit_pb2.AuditResponse(ack=audit_pb2.Ack(received=received, credit=credit, durable_step=-1))
            if kind == "step_end":
                number = frames[0].step_begin.step
                if request.step_end.frames != len(frames):
                    self.violations.append(f"{len(frames)} frames, {request.step_end.frames} announced")
                if number not in self.step_numbers():
                    self.steps.append(frames)
                else:
                    self.resent.append(number)
                    self.again.append(frames)
                frames = []
                response = audit_pb2.AuditResponse()
                unstored = self.retries.get(number, 0) > 0
                if unstored:
                    self.retries[number] -= 1
                    response.error.step = number
                    response.error.status.CopyFrom(self.retry_status)
                elif self.step_error:
                    response.error.step = number
                    response.error.status.code = grpc.StatusCode.INVALID_ARGUMENT.value[0]
                    response.error.status.message = self.step_error
                else:
                    response.verdict.step = number
                    response.verdict.verdict = self.outcome(number)
                    for name in self.wanted(number):
                        response.verdict.wanted.add(op=name)
                yield response
                durable = -1 if unstored else number
                yield audit_pb2.AuditResponse(ack=audit_pb2.Ack(received=received, credit=credit, durable_step=durable))
