"""Messages that are small as they are sent and large as they are parsed."""

from __future__ import annotations

from stream_client import Client, StepFrames, Stream, frame

from plumbline.v1 import trace_pb2

ARGUMENTS = 500_000  # Of two bytes each; parsed, each is an object.


def empty_arguments(client: Client, streams: int, job: str = "hostile") -> list[Stream]:
    """So many streams that each sent an operation of nothing but empty arguments, were told so, and stay."""
    message = frame(op=trace_pb2.Op(arguments=[trace_pb2.Argument()] * ARGUMENTS)).SerializeToString()
    opened = []
    for number in range(streams):
        stream = client.stream(f"swollen-{number}", job)
        stream.send(StepFrames(0).begin())
        stream.send_raw(message)
        stream.next("error")
        opened.append(stream)
    return opened
