"""A number that would be the last of all steps."""

from __future__ import annotations

from google.rpc import code_pb2
from stream_client import Client, StepFrames

LAST = 2**63 - 1


def poison(client: Client, run: str) -> None:
    """Sends steps that must be refused, numbered so that no step of the run could come after them if they counted."""
    stream = client.stream(run)
    for step in (LAST, 2**53, 2**53 - 1):
        bad = StepFrames(step)
        bad.op.op.arguments[0].tensor.value = 77  # Unknown.
        stream.send(*bad.frames())
        error = stream.next("error")
        assert (error.step, error.status.code) == (step, code_pb2.INVALID_ARGUMENT), error
    stream.close()
