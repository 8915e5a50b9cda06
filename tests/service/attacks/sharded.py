"""Tensors that two ranks hold in parts: small to send, large to put together."""

from __future__ import annotations

from stream_client import Client, Stream, data, floats, frame

from plumbline.v1 import audit_pb2, trace_pb2


def zero_strides(client: Client, run: str, rows: int, columns: int) -> list[Stream]:
    """Each rank holds half of the rows, every element of which is the same one: four bytes."""
    streams = []
    for rank in range(2):
        job = client.open(run, "hostile", rank, ranks=2)
        stream = Stream(client.channel, job)
        half = trace_pb2.Tensor(value=1, dtype=trace_pb2.DTYPE_FLOAT32, sizes=[rows // 2, columns], strides=[0, 0])
        part = trace_pb2.Part(tensor=half, start=[rank * (rows // 2), 0], whole=[rows, columns])
        weight = trace_pb2.Leaf(
            value=1,
            dtype=trace_pb2.DTYPE_FLOAT32,
            count=1,
            role=trace_pb2.Leaf.PARAMETER,
            name="param:w",
            payload=1,
            part=part,
        )
        frames = [frame(step_begin=audit_pb2.StepBegin(step=0)), frame(leaf=weight), *data(1, floats(1.0))]
        stream.send(*frames, frame(step_end=audit_pb2.StepEnd(frames=len(frames) + 1)))
        streams.append(stream)
    return streams
