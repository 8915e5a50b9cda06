"""A run that is forgotten while a step of it waits, and comes back as another."""

from __future__ import annotations

import grpc
from stream_client import Client, StepFrames, Stream

from plumbline.v1 import audit_pb2


def _request(run: str) -> audit_pb2.OpenJobRequest:
    return audit_pb2.OpenJobRequest(identity=audit_pb2.Identity(project="default", job="hostile", run=run))


def _ranks(client: Client, run: str, ranks: int, which: list[int]) -> list[Stream]:
    jobs = [client.open(run, "hostile", rank, ranks=ranks, reference_run="never-there") for rank in which]
    return [Stream(client.channel, job) for job in jobs]


def reopened_with_other_ranks(client: Client, others: int) -> None:
    """A step of two ranks waits for its reference; so many runs are opened that its own is forgotten; then a third
    rank sends the step."""
    for stream in _ranks(client, "evicted", 2, [0, 1]):
        stream.send(*StepFrames(0).frames())
        stream.received()
        stream.call.cancel()
    for start in range(0, others, 256):  # Together, so that the disk is synced for many at a time.
        names = [f"other-{i}" for i in range(start, min(start + 256, others))]
        for opened in [client.service.OpenJob.future(_request(name)) for name in names]:
            opened.result()
    try:
        (third,) = _ranks(client, "evicted", 3, [2])
        third.send(*StepFrames(0, (3.0, 4.0)).frames())
        third.close()
    except grpc.RpcError as error:  # The run is known still, with two ranks.
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
