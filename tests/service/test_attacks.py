"""What one client can do, others do not feel: each attack of attacks/, with an honest stream beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from attacks import evicted, hogs, in_place, replays, sharded, stalled, step_number, swollen
from attacks.honest import Honest
from google.rpc import code_pb2, status_pb2
from stream_client import Client, StepFrames
from stream_daemon import DaemonProcess

from plumbline.v1 import verdict_pb2


@pytest.fixture
def connect() -> Iterator[Callable[[DaemonProcess], Client]]:
    clients: list[Client] = []

    def client(daemon: DaemonProcess) -> Client:
        clients.append(Client(daemon.address))
        return clients[-1]

    yield client
    for each in clients:
        each.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_refused_step_is_not_the_runs_last(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client], restarted: bool
) -> None:
    daemon = new_daemon()
    step_number.poison(connect(daemon), "run")
    if restarted:
        daemon.kill()
        daemon.start()
    client = connect(daemon)
    assert client.open("run").last_durable_step == -1
    stream = client.stream("run")
    stream.send(*StepFrames(0).frames())
    assert stream.next("verdict").step == 0
    stream.durable(0)
    assert stream.close() == grpc.StatusCode.OK


@pytest.mark.parametrize("frames", [in_place.independent, in_place.from_the_first, in_place.from_the_two_before])
def test_a_tensor_may_be_written_in_place_very_often(
    new_daemon: Callable[..., DaemonProcess],
    connect: Callable[[DaemonProcess], Client],
    frames: Callable[[int, int], in_place.Frames],
) -> None:
    daemon = new_daemon("--memory-limit=1GiB")
    stream = connect(daemon).stream("run")
    with Honest(daemon.address):
        stream.send(*frames(0, 10_000))
        verdict = stream.next("verdict")
    assert (verdict.verdict, verdict.coverage.opaque) == (verdict_pb2.OUTCOME_TYPE_I, 0), verdict


def test_claims_take_nothing_from_others(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=64MiB")
    with Honest(daemon.address) as honest:
        stalled.claims(connect(daemon), 8, (8 << 20) - 1024)  # Together more than all steps may hold.
        honest.wait(10)


def test_a_step_that_does_not_come_on_gives_its_memory_back(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=64MiB", "--step-timeout=500ms")
    with Honest(daemon.address) as honest:
        streams = stalled.holds(connect(daemon), 2, 7 << 20)
        for stream in streams:
            assert stream.end() == grpc.StatusCode.DEADLINE_EXCEEDED
            assert "--step-timeout" in stream.call.details()
        honest.wait(10)


def test_a_byte_at_a_time_does_not_hold_a_step_open(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--step-timeout=500ms")
    with Honest(daemon.address):
        stream = stalled.trickles(connect(daemon))
        at = 0
        while stream.call.is_active():
            stalled.drop(stream, at)
            at += 1
        assert stream.end() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_streams_that_say_nothing_end(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--open-timeout=300ms", "--max-streams=20")
    with Honest(daemon.address):
        streams = stalled.opens_nothing(connect(daemon), 30)
        ends = [stream.end() for stream in streams]
    assert ends.count(grpc.StatusCode.DEADLINE_EXCEEDED) == 19  # The honest one is the twentieth.
    refused = [stream for stream in streams if stream.call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert len(refused) == 11
    details = status_pb2.Status.FromString(dict(refused[0].call.trailing_metadata())["grpc-status-details-bin"]).details
    assert [detail.type_url.rsplit(".", 1)[-1] for detail in details] == ["QuotaFailure", "RetryInfo"]


def test_what_a_message_takes_when_it_is_parsed_goes_with_it(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    """Of 24 streams each would keep some 30 MiB."""
    daemon = new_daemon("--memory-limit=64MiB")
    with Honest(daemon.address):
        swollen.empty_arguments(connect(daemon), 2, "before")
        before = peak_mib(daemon)
        swollen.empty_arguments(connect(daemon), 24)
    assert peak_mib(daemon) < before + 150


def test_a_run_whose_step_waits_is_not_forgotten(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--reference-timeout=300s")
    with Honest(daemon.address):
        evicted.reopened_with_other_ranks(connect(daemon), 4200)
    assert daemon.alive(), daemon.log()


def peak_mib(daemon: DaemonProcess) -> float:
    assert daemon.process is not None
    for line in open(f"/proc/{daemon.process.pid}/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmHWM")


def test_parts_may_not_make_more_than_a_step_may_hold(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=64MiB")
    with Honest(daemon.address) as honest:
        before = peak_mib(daemon)
        for stream in sharded.zero_strides(connect(daemon), "parts", 2200, 2200):
            error = stream.next("error")
            assert error.status.code == code_pb2.RESOURCE_EXHAUSTED
            assert "in parts" in error.status.message
        honest.wait(3)
        assert peak_mib(daemon) < before + 64


def test_more_work_than_there_is_time_for_is_not_begun(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=1GiB", "--audit-timeout=1s")
    with Honest(daemon.address) as honest:
        stream = connect(daemon).stream("run", "hostile")
        stream.send(*hogs.products(0, 20))
        verdict = stream.next("verdict")
        assert (verdict.verdict, verdict.cause) == (verdict_pb2.OUTCOME_INCONCLUSIVE, verdict_pb2.CAUSE_UNANSWERED)
        assert "multiplications" in verdict.sentence
        honest.wait()


def test_a_step_of_too_much_work_is_refused_before_it_is_queued(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=1GiB", "--step-work-limit=1e12")
    client = connect(daemon)
    stream = client.stream("run", "hostile")
    stream.send(*hogs.products(0, 100))
    error = stream.next("error")
    assert (error.step, error.status.code) == (0, code_pb2.RESOURCE_EXHAUSTED)
    # 100 products of 512 x 65536 and 65536 x 512.
    assert "about 1.72e+12 multiplications, more than the 1e+12 of --step-work-limit" in error.status.message
    assert "QuotaFailure" in {detail.type_url.rsplit(".", 1)[-1] for detail in error.status.details}
    stream.send(*StepFrames(1).frames())
    assert stream.next("verdict").step == 1
    with pytest.raises(grpc.RpcError) as large:
        replays.replay(client, hogs.products(0, 100))
    assert large.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "--step-work-limit" in large.value.details()


def test_an_audit_ends_at_its_deadline_or_when_its_client_leaves(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=1GiB", "--audit-timeout=3s", "--orphan-timeout=0s")
    with Honest(daemon.address) as honest:
        stream = connect(daemon).stream("run", "hostile")
        stream.send(*hogs.products(0, 30))
        verdict = stream.next("verdict")
        assert (verdict.verdict, verdict.cause) == (verdict_pb2.OUTCOME_INCONCLUSIVE, verdict_pb2.CAUSE_UNANSWERED)
        assert "--audit-timeout" in verdict.sentence
        stream.send(*hogs.products(1, 30))
        stream.call.cancel()
        honest.wait()


def test_a_file_that_is_audited_again_is_held_to_the_same_limits(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=1GiB", "--audit-timeout=2s", "--workers=cpu:1")
    with Honest(daemon.address) as honest:
        client = connect(daemon)
        with pytest.raises(grpc.RpcError) as large:
            replays.replay(client, replays.expanded(0, 1 << 17))
        assert large.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, large.value
        verdict = replays.replay(client, hogs.products(0, 100)).verdict
        assert verdict.verdict == verdict_pb2.OUTCOME_INCONCLUSIVE and "multiplications" in verdict.sentence
        with pytest.raises(grpc.RpcError) as late:
            replays.replay(client, hogs.products(0, 20))
        assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert "--audit-timeout" in str(late.value.details())
        with pytest.raises(grpc.RpcError) as left:
            replays.replay(client, hogs.products(0, 20), seconds=0.3)
        assert left.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        honest.wait()


def test_drain_timeout_holds(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=1GiB", "--drain-timeout=1s")
    stream = connect(daemon).stream("run", "hostile")
    stream.send(*hogs.products(0, 100))
    stream.received()
    start = time.monotonic()
    daemon.terminate()
    assert daemon.wait() == 1
    assert time.monotonic() - start < 1 + 1 + 2  # Its grace, and a busy machine's.
