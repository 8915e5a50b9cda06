"""What operators ask for beside verdicts: runs, refused steps, the removal of a job, the daemon itself; that their
queries hold nobody up, and that what a run remembers outlives its daemon."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from query_support import query_stub, send, type_i, type_ii
from stream_client import Client, StepFrames, data, floats, leaf
from stream_daemon import DaemonProcess

from plumbline.v1 import archive_pb2, archive_pb2_grpc, query_pb2, trace_pb2, verdict_pb2


@pytest.fixture
def job(run: str) -> str:
    return "job-" + run


def wrong(step: int) -> StepFrames:
    frames = type_i(step)
    frames.leaf.leaf.count = -1
    return frames


def test_runs_and_refused_steps_are_listed(client: Client, job: str) -> None:
    stub = query_stub(client)
    for run in ("a", "b", "c"):
        client.open(run, job, client_version="7.8.9")
    stream = client.stream("b", job, client_version="7.8.9")
    for step in (0, 1, 2**63 - 1):
        stream.send(*wrong(step).frames())
        stream.next("error")
    runs: list[query_pb2.RunSummary] = []
    request = query_pb2.ListRunsRequest(job=job, page_size=2)
    while True:
        page = stub.ListRuns(request)
        runs += page.runs
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert [each.run for each in runs] == ["a", "b", "c"]
    assert {each.client_version for each in runs} == {"7.8.9"} and {each.last_step for each in runs} == {-1}
    request = query_pb2.ListErrorsRequest(job=job, page_size=2)
    first = stub.ListErrors(request)
    rest = stub.ListErrors(query_pb2.ListErrorsRequest(job=job, page_size=2, page_token=first.next_page_token))
    assert [each.step for each in [*first.errors, *rest.errors]] == [0, 1, 2**63 - 1]
    assert not rest.next_page_token and first.errors[0].status.message.startswith("leaf.count: expected")
    # A refused step's number is not the run's last.
    [verdict] = send(stream, type_i(3))
    assert verdict.verdict == verdict_pb2.OUTCOME_TYPE_I
    for method, kind in ((stub.ListRuns, query_pb2.ListRunsRequest), (stub.ListErrors, query_pb2.ListErrorsRequest)):
        with pytest.raises(grpc.RpcError) as raised:
            method(kind(job="no-such-job"))
        assert raised.value.code() == grpc.StatusCode.NOT_FOUND


def test_steps_without_an_answer_are_listed(new_daemon: Callable[..., DaemonProcess], run: str, job: str) -> None:
    """They wait for a reference that comes when the test sends it."""
    client = Client(new_daemon("--reference-timeout=10m").address)
    stub = query_stub(client)

    def under_way(**asked: int | str) -> query_pb2.ListAuditsResponse:
        return stub.ListAudits(query_pb2.ListAuditsRequest(job=job, **asked))

    assert not under_way().audits
    reference = client.stream(f"{run}-reference", job, reference=True)
    stream = client.stream(run, job, reference_run=f"{run}-reference")
    steps = [type_i(step) for step in range(3)]
    for step in steps:
        stream.send(*step.frames())
    end = time.monotonic() + 60
    waiting = query_pb2.StepUnderWay.STAGE_WAITING_FOR_REFERENCE
    while [(each.step, each.stage) for each in under_way().audits] != [(step, waiting) for step in range(3)]:
        assert time.monotonic() < end, under_way()
    first = under_way(page_size=2)
    rest = under_way(page_size=2, page_token=first.next_page_token)
    assert [each.id for each in [*first.audits, *rest.audits]] == [f"default/{job}/{run}/0/{step}" for step in range(3)]
    assert not rest.next_page_token and (rest.audits[0].run, rest.audits[0].rank) == (run, 0)
    assert abs(rest.audits[0].since.ToSeconds() - time.time()) < 60
    assert not stub.ListAudits(query_pb2.ListAuditsRequest(project="another")).audits
    send(reference, *(type_i(step) for step in range(3)))
    stream.durable(2)
    assert not under_way().audits
    with pytest.raises(grpc.RpcError) as raised:
        under_way(page_token="no token")
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    client.close()


def test_pages_are_clamped_and_ordered(client: Client, run: str, job: str) -> None:
    stub = query_stub(client)
    send(client.stream(run, job), type_i(0), type_ii(1), type_i(2))
    everything = query_pb2.Filter(job=job)
    request = query_pb2.ListVerdictsRequest(filter=everything, page_size=10**6, order_by="surprise desc")
    assert stub.ListVerdicts(request).verdicts[0].step == 1
    request.order_by, request.page_size = "step desc", 2
    page = stub.ListVerdicts(request)
    assert [verdict.step for verdict in page.verdicts] == [2, 1]
    request.page_token = page.next_page_token
    assert [verdict.step for verdict in stub.ListVerdicts(request).verdicts] == [0]
    request.order_by = "step"
    with pytest.raises(grpc.RpcError) as raised:
        stub.ListVerdicts(request)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "page_token" in raised.value.details()


def test_a_job_is_deleted_with_its_traces(client: Client, run: str, job: str) -> None:
    stub = query_stub(client)
    stream = client.stream(run, job)
    [_, verdict] = send(stream, type_i(0), type_ii(1))
    with pytest.raises(grpc.RpcError) as raised:
        stub.DeleteJob(query_pb2.DeleteJobRequest(job=job))
    assert raised.value.code() == grpc.StatusCode.FAILED_PRECONDITION, "its stream is open"
    stream.close()
    removed = stub.DeleteJob(query_pb2.DeleteJobRequest(job=job))
    assert (removed.removed.steps, removed.removed.type_ii, removed.traces) == (2, 1, 1)
    for call, asked in (
        (stub.GetJob, query_pb2.GetJobRequest(job=job)),
        (stub.GetVerdict, query_pb2.GetVerdictRequest(id=verdict.id)),
        (stub.DeleteJob, query_pb2.DeleteJobRequest(job=job)),
    ):
        with pytest.raises(grpc.RpcError) as raised:
            call(asked)
        assert raised.value.code() == grpc.StatusCode.NOT_FOUND
    [again] = send(client.stream(run, job), type_i(0))
    assert again.step == 0, "the name may be used again"


def test_the_daemon_tells_of_itself(client: Client) -> None:
    info = query_stub(client).GetServerInfo(query_pb2.GetServerInfoRequest())
    assert info.version == client.open("info").server_version
    flags = {flag.name: flag.value for flag in info.flags}
    assert flags["memory_limit"] == "64MiB" and flags["reference_timeout"] == "300ms"
    limits = {limit.name: limit.value for limit in info.limits}
    assert limits["chunk_bytes_max"] == 1 << 20 and limits["step_bytes_max"] > 0
    assert limits["page_size_max"] == 1000 and limits["watches_max"] == 256
    assert info.started.seconds <= time.time() + 1


def test_queries_of_many_jobs_delay_no_stream(client: Client, run: str) -> None:
    """500 jobs are listed again and again; another job's steps go on."""
    stub = query_stub(client)
    opened = [client.service.OpenJob.future(_request(run, number)) for number in range(500)]
    for each in opened:
        each.result()
    stream = client.stream(run, "timed-" + run)
    step = iter(range(10**6))

    def latency() -> float:
        start = time.perf_counter()
        send(stream, type_i(next(step)))
        return time.perf_counter() - start

    [latency() for _ in range(20)]
    alone = statistics.median(latency() for _ in range(40))
    stop = threading.Event()
    listed: list[int] = []

    def ask() -> None:
        while not stop.is_set():
            listed.append(len(stub.ListJobs(query_pb2.ListJobsRequest(page_size=1000)).jobs))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        while not listed:
            stop.wait(0.001)
        beside = statistics.median(latency() for _ in range(40))
    finally:
        stop.set()
        asking.join()
    assert min(listed) >= 500
    print(f"median latency {1e3 * alone:.1f} ms alone, {1e3 * beside:.1f} ms beside {len(listed)} lists")
    assert beside < 10 * alone + 0.05


def _request(run: str, number: int):
    from plumbline.v1 import audit_pb2

    identity = audit_pb2.Identity(project="many", job=f"{run}-{number}", run="run")
    return audit_pb2.OpenJobRequest(identity=identity)


def test_a_query_without_time_is_given_up(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        query_stub(client).GetStats(query_pb2.GetStatsRequest(), timeout=-1)
    assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_uploads_that_stall_hold_nobody(client: Client) -> None:
    stub = archive_pb2_grpc.ArchiveServiceStub(client.channel)
    stop = threading.Event()

    def stalled() -> Iterator[archive_pb2.ReplayRequest]:
        yield archive_pb2.ReplayRequest(data=b"PLTRACE2")
        stop.wait(60)

    calls = [stub.Replay.future(stalled()) for _ in range(8)]
    try:
        stub.ListGolden(archive_pb2.ListGoldenRequest(), timeout=30)  # It answers.
        refused = grpc.StatusCode.OK
        while refused != grpc.StatusCode.RESOURCE_EXHAUSTED:  # All eight have arrived.
            with pytest.raises(grpc.RpcError) as raised:
                stub.Replay(iter([archive_pb2.ReplayRequest(data=b"x")]), timeout=30)
            refused = raised.value.code()
    finally:
        stop.set()
        for call in calls:
            call.cancel()


def carried(step: int, start: tuple[float, float], left: tuple[float, float]) -> StepFrames:
    """w' = w + w, a parameter's update: what a step leaves is what the next one starts with."""
    frames = StepFrames(step, x=start, y=left)
    frames.leaf = leaf(1, 2, 1, role=trace_pb2.Leaf.PARAMETER, name="param:w")
    tap = frames.tap.tap
    tap.name, tap.kind = "update:w", trace_pb2.Tap.UPDATE
    frames.data = [*data(1, floats(*start)), *data(2, floats(*left))]
    del tap.terms[:]
    written = tap.terms.add(weight=1.0, observed=2)
    written.tensor.CopyFrom(frames.op.op.results[0].tensor)
    before = tap.terms.add(weight=-1.0)
    before.tensor.CopyFrom(frames.op.op.arguments[0].tensor)
    return frames


def test_invariants_outlive_the_daemon(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon()

    def step(*steps: StepFrames) -> verdict_pb2.Verdict:
        client = Client(daemon.address)
        try:
            return send(client.stream(), *steps)[-1]
        finally:
            client.close()

    assert step(carried(0, (1.0, 2.0), (2.0, 4.0))).verdict == verdict_pb2.OUTCOME_TYPE_I
    assert step(carried(1, (2.0, 4.0), (4.0, 8.0))).verdict == verdict_pb2.OUTCOME_TYPE_I
    daemon.kill()
    daemon.start()
    assert step(carried(2, (4.0, 8.0), (8.0, 16.0))).verdict == verdict_pb2.OUTCOME_TYPE_I, "nothing changed in between"
    daemon.kill()
    daemon.start()
    changed = step(carried(3, (8.0, 17.0), (16.0, 34.0)))
    assert (changed.verdict, changed.cause) == (verdict_pb2.OUTCOME_TYPE_II, verdict_pb2.CAUSE_INVARIANT)


def test_a_pair_outlives_the_daemon(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon()
    client = Client(daemon.address)
    send(client.stream("reference", reference=True), type_i(0), type_i(1))
    send(client.stream("target", reference_run="reference"), type_i(0))
    client.close()
    daemon.kill()
    daemon.start()
    client = Client(daemon.address)
    [verdict] = send(client.stream("target", reference_run="reference"), type_i(1))
    assert (verdict.verdict, verdict.reference) == (verdict_pb2.OUTCOME_TYPE_I, "run reference step 1")
    client.close()


def test_retention_is_kept(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon("--retention=verdicts=3,errors=1")
    client = Client(daemon.address)
    stream = client.stream()
    send(stream, *map(type_i, range(6)))
    for step in (6, 7):
        stream.send(*wrong(step).frames())
        stream.next("error")
    stream.close()
    client.close()
    daemon.terminate()
    daemon.wait()
    daemon.start()  # It begins with a sweep.
    client = Client(daemon.address)
    stub = query_stub(client)
    deadline = time.monotonic() + 60
    while (summary := stub.GetJob(query_pb2.GetJobRequest(job="job"))).steps > 3 or summary.errors > 1:
        assert time.monotonic() < deadline, summary
    assert [verdict.step for verdict in stub.ListVerdicts(query_pb2.ListVerdictsRequest()).verdicts] == [3, 4, 5]
    stream = client.stream()
    stream.send(*type_i(1).frames())
    assert "expected a step after 5" in stream.next("error").status.message, "it was judged once"
    client.close()


@pytest.mark.parametrize("rule", ["verdicts", "verdicts=0", "jobs=3", "errors=20GiB", "runs=soon"])
def test_a_rule_of_retention_is_checked(rule: str) -> None:
    from subprocess import run

    from stream_daemon import binary

    refused = run([binary(), f"--retention={rule}"], capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 1
    assert refused.stderr.startswith("plumblined: --retention: expected KIND=LIMIT")
    assert f'found "{rule}"' in refused.stderr
