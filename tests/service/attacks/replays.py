"""Trace files to audit again, which are as hostile as steps can be."""

from __future__ import annotations

from collections.abc import Iterator

from stream_client import Client, StepFrames, frame

from plumbline.v1 import archive_pb2, archive_pb2_grpc, audit_pb2, query_pb2, trace_pb2


def _varint(number: int) -> bytes:
    made = b""
    while number > 127:
        made += bytes((number & 127 | 128,))
        number >>= 7
    return made + bytes((number,))


def replay(client: Client, frames: list[audit_pb2.AuditRequest], seconds: float = 60) -> query_pb2.Explanation:
    """Sends the frames as a file, as `plumb replay` does."""
    file = b"".join(_varint(each.ByteSize()) + each.SerializeToString() for each in frames)

    def requests() -> Iterator[archive_pb2.ReplayRequest]:
        for at in range(0, len(file), 1 << 20):
            yield archive_pb2.ReplayRequest(data=file[at : at + (1 << 20)])

    return archive_pb2_grpc.ArchiveServiceStub(client.channel).Replay(requests(), timeout=seconds)


def expanded(step: int, side: int) -> list[audit_pb2.AuditRequest]:
    """A result of side x side elements, which is one number: four bytes."""
    frames = StepFrames(step)
    wide = trace_pb2.Tensor(value=3, dtype=trace_pb2.DTYPE_FLOAT32, sizes=[side, side], strides=[0, 0])
    op = trace_pb2.Op(name="aten::relu.default", phase=trace_pb2.PHASE_FORWARD)
    op.arguments.add(name="self").tensor.CopyFrom(wide)
    op.arguments[0].tensor.value = 2
    op.results.add(tensor=wide, count=1)
    frames.extra = [frame(op=op)]
    return frames.frames()
