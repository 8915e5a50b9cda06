"""Streams that claim much, send little, and then nothing."""

from __future__ import annotations

from stream_client import Client, Stream, frame, leaf

from plumbline.v1 import audit_pb2, trace_pb2


def claims(client: Client, count: int, claimed: int) -> list[Stream]:
    """Streams with an open step whose first tensor is announced with `claimed` bytes and begun with four."""
    streams = []
    for i in range(count):
        stream = client.stream(f"claims-{i}", "hostile")
        begin = trace_pb2.TensorData(payload=1, total=claimed, data=b"1234")
        stream.send(frame(step_begin=audit_pb2.StepBegin(step=0)), leaf(1, claimed // 4, 1), frame(data=begin))
        streams.append(stream)
    return streams


def holds(client: Client, count: int, held: int, chunk: int = 1 << 20) -> list[Stream]:
    """Streams with an open step of which `held` bytes were sent and the last one is not."""
    streams = []
    for i in range(count):
        stream = client.stream(f"holds-{i}", "hostile")
        stream.send(frame(step_begin=audit_pb2.StepBegin(step=0)), leaf(1, held, 1, dtype=trace_pb2.DTYPE_UINT8))
        for at in range(0, held - 1, chunk):
            piece = bytes(min(chunk, held - 1 - at))
            stream.send(frame(data=trace_pb2.TensorData(payload=1, offset=at, total=held, data=piece)))
        streams.append(stream)
    return streams


def trickles(client: Client) -> Stream:
    """A stream with an open step of a mebibyte; the caller sends its bytes one by one with drop()."""
    stream = client.stream("trickles", "hostile")
    stream.send(frame(step_begin=audit_pb2.StepBegin(step=0)), leaf(1, 1 << 20, 1, dtype=trace_pb2.DTYPE_UINT8))
    return stream


def drop(stream: Stream, at: int) -> None:
    stream.send(frame(data=trace_pb2.TensorData(payload=1, offset=at, total=1 << 20, data=b"x")))


def opens_nothing(client: Client, count: int) -> list[Stream]:
    """Streams that never send a frame."""
    return [Stream(client.channel, None) for _ in range(count)]
