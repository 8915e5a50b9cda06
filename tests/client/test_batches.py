"""Frames of a step in few messages: nothing is lost, nothing is out of order, and no message is too large."""

import pytest

from plumbline.encode import batched
from plumbline.v1 import audit_pb2, trace_pb2


def _frames(sizes: list[int]) -> list[bytes]:
    data = (trace_pb2.TensorData(payload=1 + index, total=size, data=bytes(size)) for index, size in enumerate(sizes))
    return [audit_pb2.AuditRequest(data=each).SerializeToString() for each in data]


@pytest.mark.parametrize("bytes_max", [64, 256, 4096, 1 << 18])
def test_messages_hold_the_frames_in_their_order(bytes_max: int) -> None:
    frames = _frames([3, 1, 120, 0, 40, 41, 42, 2000, 5000, 7, 300, 1] * 20)
    found: list[bytes] = []
    messages = list(batched(frames, bytes_max))
    for message in messages:
        request = audit_pb2.AuditRequest.FromString(message)
        if request.HasField("batch"):
            assert len(message) <= bytes_max
            found += [frame.SerializeToString() for frame in request.batch.frames]
        else:
            found.append(message)
    assert found == frames
    assert len(messages) < len(frames)


def test_a_daemon_that_takes_no_batches_gets_none() -> None:
    frames = _frames([3, 1, 120])
    assert list(batched(frames, 0)) == frames
