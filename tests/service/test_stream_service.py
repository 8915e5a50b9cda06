"""The daemon as a service: resume, drain, crash, memory shared by streams, health, reflection, its command line."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2
from stream_client import Client, StepFrames, Stream, data, floats, frame
from stream_daemon import DaemonProcess, binary

from plumbline.v1 import audit_pb2, query_pb2, query_pb2_grpc, trace_pb2, verdict_pb2


@pytest.fixture
def connect() -> Iterator[Callable[[DaemonProcess], Client]]:
    clients: list[Client] = []

    def to(daemon: DaemonProcess) -> Client:
        clients.append(Client(daemon.address))
        return clients[-1]

    yield to
    for client in clients:
        client.close()


def test_a_step_sent_again_is_answered_with_the_same_verdict(client: Client, run: str) -> None:
    first = client.stream(run)
    first.send(*StepFrames(0).frames())
    verdict = first.next("verdict")
    assert first.close() == grpc.StatusCode.OK
    assert client.open(run).last_durable_step == 0
    second = client.stream(run)
    second.send(*StepFrames(0).frames())
    assert second.next("verdict") == verdict


def test_a_broken_stream_gives_its_run_back_and_its_step_is_sent_again(client: Client, run: str) -> None:
    first = client.stream(run)
    first.send(*StepFrames(0).frames()[:-1])
    first.call.cancel()
    assert first.end() == grpc.StatusCode.CANCELLED
    for _ in range(1000):  # Until the daemon has seen it too.
        again = client.stream(run)
        again.send(*StepFrames(0).frames())
        again.wait(lambda again=again: again._done or any(each.HasField("verdict") for each in again))
        if not again._done:
            break
        assert again.end() == grpc.StatusCode.ALREADY_EXISTS
    assert again.next("verdict").step == 0


def test_what_was_acknowledged_survives_kill(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon()
    stream = connect(daemon).stream("run")
    verdicts = {}
    for step in range(20):
        stream.send(*StepFrames(step).frames())
        verdicts[step] = stream.next("verdict")
    stream.send(*StepFrames(20).frames()[:-1])
    daemon.kill()
    assert stream.end() == grpc.StatusCode.UNAVAILABLE
    daemon.start()  # Over the socket that the dead daemon left behind.
    client = connect(daemon)
    assert client.open("run").last_durable_step == 19
    stub = query_pb2_grpc.VerdictServiceStub(client.channel)
    for step, verdict in verdicts.items():
        assert stub.GetVerdict(query_pb2.GetVerdictRequest(id=f"default/job/run/0/{step}")) == verdict
    again = client.stream("run")
    again.send(*StepFrames(19).frames(), *StepFrames(20).frames())
    assert again.next("verdict") == verdicts[19]
    assert again.next("verdict").step == 20


def test_sigterm_finishes_the_open_step(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=64MiB")
    client = connect(daemon)
    busy, idle = client.stream("busy"), client.stream("idle")
    idle.send(*StepFrames(0).frames())
    idle.next("verdict")
    step = StepFrames(0)
    step.extra = data(9, bytes(15 << 19))
    frames = step.frames()
    busy.send(*frames[:-1])
    busy.wait(lambda: any(each.ack.received > 1 << 20 for each in busy))  # So the step is open there.
    daemon.terminate()
    assert busy.next("control").draining
    assert idle.end() == grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.RpcError) as caught:
        client.open("new")
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert health(client) == "NOT_SERVING"
    busy.send(frames[-1])
    assert busy.next("verdict").step == 0
    assert busy.end() == grpc.StatusCode.UNAVAILABLE
    assert daemon.wait() == 0
    assert not (daemon.directory / "d.sock").exists()


def test_a_signal_drains_whatever_thread_the_system_gives_it(
    monkeypatch: pytest.MonkeyPatch, new_daemon: Callable[..., DaemonProcess]
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")  # It starts a thread before the daemon can block any signal.
    daemon = new_daemon()
    assert daemon.process
    process = daemon.process.pid
    blocked = {
        int(task.name): int((task / "status").read_text().split("SigBlk:")[1].split()[0], 16)
        for task in Path(f"/proc/{process}/task").iterdir()
    }
    taking = [thread for thread, mask in blocked.items() if not mask >> (signal.SIGTERM - 1) & 1]
    assert taking
    for thread in taking:
        assert ctypes.CDLL(None).tgkill(process, thread, signal.SIGTERM) == 0
    assert daemon.wait() == 0


def test_drain_ends_at_its_timeout(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--drain-timeout=100ms")
    stream = connect(daemon).stream("run")
    step = StepFrames(0)
    step.tap.tap.name = ""
    stream.send(*step.frames()[:-1])
    stream.next("error")  # So the frames have arrived, and the step stays open.
    daemon.terminate()
    assert daemon.wait() == 1
    assert "sent again" in daemon.log()


def test_steps_wait_for_memory_that_others_hold(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=64MiB")  # 16 MiB for all steps, 8 MiB for one.
    client = connect(daemon)
    streams = [client.stream(f"run-{number}") for number in range(6)]
    outcomes: list[int] = []

    def send(stream: Stream) -> None:
        step = StepFrames(0)
        step.extra = data(9, bytes(7 << 20))  # Two such steps fit.
        while True:  # A step that fills the memory together with others may be asked for again.
            stream.send(*step.frames())
            stream.wait(lambda: any(each.HasField("verdict") or each.HasField("error") for each in stream))
            if any(each.HasField("verdict") for each in stream):
                break
            error = stream.next("error").status
            assert error.code == code_pb2.RESOURCE_EXHAUSTED
            assert any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in error.details)
        outcomes.append(stream.next("verdict").verdict)

    threads = [threading.Thread(target=send, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [verdict_pb2.OUTCOME_TYPE_I] * 6


def test_open_steps_that_block_each_other_are_resolved(
    new_daemon: Callable[..., DaemonProcess], connect: Callable[[DaemonProcess], Client]
) -> None:
    daemon = new_daemon("--memory-limit=64MiB")
    client = connect(daemon)
    streams = [client.stream(f"run-{number}") for number in range(3)]
    for stream in streams:  # Each holds 5 of 16 MiB and will ask for 2 more.
        stream.send(StepFrames(0).begin(), *data(9, bytes(5 << 20)))
    answers: list[str] = []

    def finish(stream: Stream) -> None:
        step = StepFrames(0)
        rest = [*data(8, bytes(2 << 20)), *step.body()]
        end = audit_pb2.StepEnd(frames=1 + 5 + len(rest) + 1)
        stream.send(*rest, frame(step_end=end))
        stream.wait(lambda: any(each.HasField("verdict") or each.HasField("error") for each in stream))
        answered = [each for each in stream if not each.HasField("ack")]
        answers.append(
            "verdict" if answered[0].HasField("verdict") else code_pb2.Code.Name(answered[0].error.status.code)
        )

    threads = [threading.Thread(target=finish, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(answers)) in (["RESOURCE_EXHAUSTED", "verdict"], ["verdict"]), answers
    assert answers.count("verdict") >= 2


def test_many_jobs_at_once(client: Client, run: str) -> None:
    def send(number: int) -> None:
        stream = client.stream(run, job=f"job-{number}")
        for step in range(20):
            stream.send(*StepFrames(step, x=(float(number), float(step))).frames())
        for step in range(20):
            verdict = stream.next("verdict")
            assert (verdict.step, verdict.job, verdict.verdict) == (step, f"job-{number}", verdict_pb2.OUTCOME_TYPE_I)
        assert stream.close() == grpc.StatusCode.OK
        done.append(number)

    done: list[int] = []
    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(8))


def test_pairs_of_runs(client: Client, run: str) -> None:
    target = client.stream(run, reference_run=f"reference/{run}")
    reference = client.stream(run, job="reference", reference=True)
    same, other = StepFrames(0), StepFrames(1, x=(1.0, 5.0))
    reference.send(*same.frames())
    target.send(*same.frames())
    verdict = target.next("verdict")
    assert verdict.verdict == verdict_pb2.OUTCOME_TYPE_I and verdict.reference == f"run {run} step 0"
    reference.send(*StepFrames(1).frames())
    reference.next("verdict")
    target.send(*other.frames())  # Was fed other data.
    verdict = target.next("verdict")
    assert (verdict.verdict, verdict.cause) == (verdict_pb2.OUTCOME_TYPE_II, verdict_pb2.CAUSE_LEAF_MISMATCH)


def test_missed_steps_show(client: Client, run: str) -> None:
    stream = client.stream(run, job=run)
    step = StepFrames(5)
    step.missed = ["queue_full", "disconnected"]
    stream.send(*step.frames())
    verdict = stream.next("verdict")
    assert any("2 sampled steps" in note for note in verdict.notes)
    stub = query_pb2_grpc.VerdictServiceStub(client.channel)
    assert stub.GetJob(query_pb2.GetJobRequest(project="default", job=run)).missed == 2


def test_refused_steps_are_counted(client: Client, run: str) -> None:
    stream = client.stream(run, job=run)
    step = StepFrames(0)
    step.tap.tap.name = ""
    stream.send(*step.frames())
    assert stream.next("error").status.code == code_pb2.INVALID_ARGUMENT
    stub = query_pb2_grpc.VerdictServiceStub(client.channel)
    assert stub.GetJob(query_pb2.GetJobRequest(project="default", job=run)).errors == 1


def test_acks_grow_with_what_was_received(client: Client, run: str) -> None:
    stream = client.stream(run)
    for step in range(3):
        big = StepFrames(step)
        big.extra = data(9, bytes(6 << 20))
        stream.send(*big.frames())
        stream.next("verdict")
    acks = [each.ack for each in stream if each.HasField("ack")]
    assert acks[0].received == 0 and acks[0].credit >= 2 * ((1 << 20) + (64 << 10)) and acks[0].durable_step == -1
    stream.durable(2)
    for earlier, later in itertools.pairwise(acks):
        assert later.credit >= earlier.credit and later.received >= earlier.received
    assert acks[-1].received <= stream.sent <= acks[-1].credit


def test_open_job_is_idempotent(client: Client, run: str) -> None:
    first, second = client.open(run), client.open(run)
    assert first.handle == second.handle != ""
    assert first.plan.chunk_bytes_max == 1 << 20
    assert "aten::add.Tensor" in first.plan.lowered_ops
    assert first.server_version and first.identity.run == run and first.last_durable_step == -1
    for change in ({"profile": "pytorch-cpu"}, {"reference_run": "another"}):
        with pytest.raises(grpc.RpcError) as caught:
            client.open(run, **change)
        assert caught.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)


def call(client: Client, method: str, request: bytes = b"") -> bytes:
    """A unary call of a service whose stubs are not at hand."""
    return client.channel.unary_unary(method)(request)


def health(client: Client) -> str:
    return {b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}[call(client, "/grpc.health.v1.Health/Check")]


def test_health_reflection_and_channelz(client: Client) -> None:
    assert health(client) == "SERVING"
    listed = next(
        iter(
            client.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(
                iter([b"\x3a\x00"])
            )
        )
    )
    for service in (b"plumbline.v1.AuditService", b"plumbline.v1.VerdictService", b"grpc.health.v1.Health"):
        assert service in listed
    assert call(client, "/grpc.channelz.v1.Channelz/GetServers")


def test_starts_with_one_line_that_says_it_all(shared_daemon: DaemonProcess) -> None:
    line = shared_daemon.log().splitlines()[0]
    for part in (shared_daemon.address, "data in", "workers cpu x 1 on", "MiB memory", "profiles", "ieee"):
        assert part in line, line


def test_socket_is_the_owners_alone(shared_daemon: DaemonProcess) -> None:
    assert stat.S_IMODE(os.stat(shared_daemon.directory / "d.sock").st_mode) & 0o077 == 0


def refused(*flags: str) -> str:
    ended = subprocess.run([binary(), *flags], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended
    (line,) = ended.stderr.splitlines()
    return line


def test_one_line_errors_of_the_command_line(tmp_path: Path, shared_daemon: DaemonProcess) -> None:
    at = f"--data-dir={tmp_path}/data"
    assert "not on loopback" in refused("--listen=0.0.0.0:7077", at)
    assert "--insecure" in refused("--listen=127.0.0.1:7077", at)
    assert "expected a host that resolves" in refused("--listen=127.0.0.1.invalid:7077", at)
    assert "HOST:PORT" in refused("--listen=nonsense", at)
    for workers, wrong in {
        "cuda": 'entry 1: expected cpu, cpu:N or cuda:N, found "cuda"',
        "cpu,gpu:0": 'entry 2: expected cpu, cpu:N or cuda:N, found "gpu:0"',
        "cpu:0": 'entry 1: expected cpu or cpu:N, N >= 1, found "cpu:0"',
        "cpu,cpu:256": 'entry 2: expected at most 256 cpu workers in all, found "cpu:256"',
        "cuda:0,cuda:64": 'entry 2: expected cuda:N, 0 <= N < 64, found "cuda:64"',
        "cuda:1,cuda:1": 'entry 2: expected each device once, found "cuda:1"',
        "": "entry 1: expected cpu, cpu:N or cuda:N, found",
    }.items():
        assert wrong in refused(f"--workers={workers}", f"--listen=unix:{tmp_path}/s", at)
    assert "--workers: cuda:0: expected" in refused("--workers=cuda:0,cpu", f"--listen=unix:{tmp_path}/s", at)
    for limit, wrong in {
        "0%": "expected a share above 0% and at most 100%",
        "101%": "expected a share above 0% and at most 100%",
        "1MiB": "expected at least 67108864 bytes, found 1048576",
        "some": "--gpu-memory-limit",
    }.items():
        assert wrong in refused(f"--gpu-memory-limit={limit}", f"--listen=unix:{tmp_path}/s", at)
    assert "--sliced-products: expected 0 or more" in refused("--sliced-products=-1", f"--listen=unix:{tmp_path}/s", at)
    assert "--memory-limit" in refused("--memory-limit=lots", f"--listen=unix:{tmp_path}/s", at)
    assert "at least" in refused("--memory-limit=1MiB", f"--listen=unix:{tmp_path}/s", at)
    assert "--profiles" in refused(f"--profiles={tmp_path}/none", f"--listen=unix:{tmp_path}/s", at)
    assert "unexpected argument" in refused("word")
    assert "in use" in refused(f"--listen={shared_daemon.address}", at)
    (tmp_path / "file").write_text("x")
    assert "not a socket" in refused(f"--listen=unix:{tmp_path}/file", at)
    assert (tmp_path / "file").read_text() == "x"
    assert "metrics" in refused("--metrics-listen=nowhere", f"--listen=unix:{tmp_path}/s", at)


def test_a_second_daemon_on_the_same_data(tmp_path: Path, shared_daemon: DaemonProcess) -> None:
    line = refused(f"--listen=unix:{tmp_path}/s", f"--data-dir={shared_daemon.directory}/data")
    assert "another" in line


def test_listens_on_tcp_and_unix_at_once(tmp_path: Path) -> None:
    command = [
        binary(),
        f"--listen=unix://{tmp_path}/s,127.0.0.1:0",
        "--listen",
        f"unix:{tmp_path}/t",
        "--insecure",
        f"--data-dir={tmp_path}/data",
        "--workers=cpu:2",
        "--memory-limit=1G",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        addresses = line.split("listens on ")[1].split(";")[0].split(", ")
        assert addresses[0] == f"unix:{tmp_path}/s" and addresses[2] == f"unix:{tmp_path}/t", line
        assert "workers cpu x 2" in line
        for number, address in enumerate(addresses):
            client = Client(address)
            stream = client.stream(run="run", job=f"job-{number}")
            stream.send(*StepFrames(0).frames())
            assert stream.next("verdict").verdict == verdict_pb2.OUTCOME_TYPE_I
            client.close()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_bytes_that_are_not_http2(shared_daemon: DaemonProcess, client: Client, run: str) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(shared_daemon.directory / "d.sock"))
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(10000))
        raw.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            while raw.recv(65536):
                pass
    stream = client.stream(run)
    stream.send(*StepFrames(0).frames())
    assert stream.next("verdict").step == 0


def test_in_place_write_and_bare_reference_value(client: Client, run: str) -> None:
    stream = client.stream(run)
    step = StepFrames(0)
    step.op.op.name = "aten::add_.Tensor"
    step.op.op.results[0].base = 1
    step.op.op.results[0].argument = "self"
    step.tap.tap.reference, step.tap.tap.reference_dtype = 9, trace_pb2.DTYPE_FLOAT32
    step.extra = data(9, floats(2.0, 4.0))
    stream.send(*step.frames())
    assert stream.next("verdict").verdict == verdict_pb2.OUTCOME_TYPE_I
