"""What operators ask of a live daemon: every call of VerdictService over verdicts that streams have made."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import grpc
import pytest
from google.protobuf import timestamp_pb2
from query_support import inconclusive, query_stub, send, type_i, type_ii
from stream_client import Client, StepFrames
from stream_daemon import DaemonProcess

from plumbline.v1 import query_pb2, verdict_pb2


@pytest.fixture
def job(run: str) -> str:
    """A job that no other test uses."""
    return "job-" + run


def filter_of(job: str, **fields: object) -> query_pb2.Filter:
    return query_pb2.Filter(job=job, **fields)


def test_verdicts_can_be_asked_for(client: Client, run: str, job: str) -> None:
    stub = query_stub(client)
    stream = client.stream(run, job)
    sent = send(stream, type_i(0), inconclusive(1), type_ii(2), type_i(3))
    outcomes = [
        verdict_pb2.OUTCOME_TYPE_I,
        verdict_pb2.OUTCOME_INCONCLUSIVE,
        verdict_pb2.OUTCOME_TYPE_II,
        verdict_pb2.OUTCOME_TYPE_I,
    ]
    assert [verdict.verdict for verdict in sent] == outcomes
    stream.close()

    listed = stub.ListVerdicts(query_pb2.ListVerdictsRequest(filter=filter_of(job)))
    assert [verdict.id for verdict in listed.verdicts] == [f"default/{job}/{run}/0/{step}" for step in range(4)]
    assert [verdict.verdict for verdict in listed.verdicts] == outcomes
    assert not any(verdict.taps for verdict in listed.verdicts)
    assert listed.next_page_token == ""

    for verdict in sent:
        whole = stub.GetVerdict(query_pb2.GetVerdictRequest(id=verdict.id))
        assert whole.SerializeToString(deterministic=True) == verdict.SerializeToString(deterministic=True)
        assert whole.HasField("time") and len(whole.digest) == 32
        assert bool(whole.taps) == (whole.verdict != verdict_pb2.OUTCOME_INCONCLUSIVE)
        assert whole.HasField("surprise") == (whole.verdict != verdict_pb2.OUTCOME_INCONCLUSIVE)
        assert (whole.surprise == math.inf) == (whole.verdict == verdict_pb2.OUTCOME_TYPE_II)
        assert all(tap.HasField("surprise") for tap in whole.taps)

    explained = stub.ExplainVerdict(query_pb2.GetVerdictRequest(id=sent[2].id))
    assert "TYPE_II" in explained.text and "aten::add.Tensor at train.py:7" in explained.text

    summary = stub.GetJob(query_pb2.GetJobRequest(job=job))
    assert (summary.steps, summary.type_i, summary.inconclusive, summary.type_ii) == (4, 2, 1, 1)
    assert list(summary.runs) == [run] and summary.worst_verdict_id == sent[2].id

    stats = stub.GetStats(query_pb2.GetStatsRequest(filter=filter_of(job)))
    assert (stats.verdicts, stats.type_ii, stats.operations, stats.opaque) == (4, 1, 4, 1)
    assert stats.audit_seconds > 0
    assert stats.surprise_max == math.inf and 0 <= stats.surprise_median < 3


def test_filters_and_pages(client: Client, run: str, job: str) -> None:
    stub = query_stub(client)
    stream = client.stream(run, job)
    send(stream, *(type_ii(step) if step == 5 else type_i(step) for step in range(12)))

    def steps(**fields: object) -> list[int]:
        request = query_pb2.ListVerdictsRequest(filter=filter_of(job, **fields), page_size=5)
        found: list[int] = []
        while True:
            page = stub.ListVerdicts(request)
            assert len(page.verdicts) <= 5
            found += [verdict.step for verdict in page.verdicts]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    assert steps() == list(range(12))
    assert steps(verdict=verdict_pb2.OUTCOME_TYPE_II) == [5]
    assert steps(verdict=verdict_pb2.OUTCOME_TYPE_I, step_min=4, step_max=7) == [4, 6, 7]
    assert steps(run="another") == []
    assert steps(project="another") == []


@pytest.mark.parametrize(
    ("request_fields", "field"),
    [
        ({"page_size": -1}, "page_size"),
        ({"order_by": "margin"}, "order_by"),
        ({"order_by": " desc"}, "order_by"),
        ({"filter": query_pb2.Filter(rank=-2)}, "filter.rank"),
        ({"filter": query_pb2.Filter(surprise_min=math.nan)}, "filter.surprise_min"),
        ({"filter": query_pb2.Filter(time_min=timestamp_pb2.Timestamp(nanos=-1))}, "filter.time_min"),
        ({"page_token": "garbage"}, "page_token"),
        ({"page_token": "A" * 4096}, "page_token"),
        ({"filter": query_pb2.Filter(step_min=-1)}, "filter.step_min"),
        ({"filter": query_pb2.Filter(step_min=3, step_max=2)}, "filter.step_max"),
    ],
)
def test_bad_questions_name_the_field(client: Client, request_fields: dict[str, object], field: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        query_stub(client).ListVerdicts(query_pb2.ListVerdictsRequest(**request_fields))
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert raised.value.details().startswith(field + ": expected ")


def test_what_is_not_there(client: Client) -> None:
    stub = query_stub(client)
    for call, request in [
        (stub.GetVerdict, query_pb2.GetVerdictRequest(id="default/none/none/0/0")),
        (stub.ExplainVerdict, query_pb2.GetVerdictRequest(id="default/none/none/0/0")),
        (stub.GetJob, query_pb2.GetJobRequest(job="none")),
    ]:
        with pytest.raises(grpc.RpcError) as raised:
            call(request)
        assert raised.value.code() == grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError) as raised:
        stub.GetVerdict(query_pb2.GetVerdictRequest(id="default/none"))
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_the_gap_and_the_refusals_are_in_the_history(client: Client, run: str, job: str) -> None:
    stream = client.stream(run, job)
    send(stream, type_i(0))
    gap = type_i(5)
    gap.missed = ["queue_full", "disconnected"]
    send(stream, gap)
    broken = StepFrames(6)
    broken.op.op.arguments[0].tensor.value = 99
    stream.send(*broken.frames())
    assert stream.next("error").step == 6
    summary = query_stub(client).GetJob(query_pb2.GetJobRequest(job=job))
    assert (summary.steps, summary.missed, summary.errors) == (2, 2, 1)


def test_a_watch_sees_past_and_new_once_each(client: Client, run: str, job: str) -> None:
    stream = client.stream(run, job)
    send(stream, *(type_i(step) for step in range(5)))
    watch = query_stub(client).WatchVerdicts(query_pb2.WatchVerdictsRequest(filter=filter_of(job), include_past=True))
    sender = threading.Thread(target=send, args=(stream, *(type_i(step) for step in range(5, 15))))
    sender.start()
    seen = [next(watch).step for _ in range(15)]
    sender.join()
    watch.cancel()
    assert seen == list(range(15))


def test_verdicts_survive_kill_9(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon()
    acknowledged: list[verdict_pb2.Verdict] = []
    for round_ in range(3):
        client = Client(daemon.address)
        run = f"run-{round_}"
        stream = client.stream(run)
        acknowledged += send(stream, *(type_i(step) for step in range(20)))
        stream.send(*type_i(20).frames())  # Under way when the daemon dies.
        daemon.kill()
        client.close()
        daemon.start()
        client = Client(daemon.address)
        stub = query_stub(client)
        for verdict in acknowledged:
            kept = stub.GetVerdict(query_pb2.GetVerdictRequest(id=verdict.id))
            assert kept.SerializeToString(deterministic=True) == verdict.SerializeToString(deterministic=True)
        last = client.open(run).last_durable_step
        assert last in (19, 20)
        # The job goes on where the daemon says, and a step that was on disk already is no error.
        resumed = client.stream(run)
        resumed.send(*type_i(last).frames())
        resumed.send(*type_i(21).frames())
        assert resumed.next("verdict").step == last
        assert resumed.next("verdict").step == 21
        resumed.close()
        assert stub.GetJob(query_pb2.GetJobRequest(job="job")).errors == 0
        client.close()


def test_drain_ends_watches(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon()
    client = Client(daemon.address)
    watch = query_stub(client).WatchVerdicts(query_pb2.WatchVerdictsRequest())
    watch.initial_metadata()
    daemon.terminate()
    with pytest.raises(grpc.RpcError) as raised:
        next(watch)
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    assert daemon.wait() == 0
    client.close()
