"""What a project may take is its own: beyond it, its streams and steps are refused, and another's go on."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from observability import get
from other_user import NOBODY, as_user
from query_support import metrics_address, query_stub, send, type_i, type_ii
from stream_client import WAIT_S_MAX, Client, StepFrames, Stream, frame
from stream_daemon import DaemonProcess, binary

from plumbline.v1 import audit_pb2, query_pb2, trace_pb2

NewDaemon = Callable[..., DaemonProcess]
ASK = query_pb2.GetServerInfoRequest()


def write(path: Path, quota: str) -> Path:
    path.write_text(f'projects: "small" projects: "large"\nquotas {{ projects: "small" {quota} }}\n')
    return path


def limited(new_daemon: NewDaemon, path: Path, quota: str, *flags: str) -> DaemonProcess:
    return new_daemon(f"--policy={write(path / 'policy', quota)}", "--metrics-listen=127.0.0.1:0", *flags)


def subjects(status: status_pb2.Status) -> tuple[list[str], bool]:
    """Whose quota was reached, and whether asking again may help."""
    found, again = [], False
    for detail in status.details:
        quota, retry = error_details_pb2.QuotaFailure(), error_details_pb2.RetryInfo()
        if detail.Unpack(quota):
            found += [violation.subject for violation in quota.violations]
        again = again or (detail.Unpack(retry) and retry.retry_delay.ToNanoseconds() > 0)
    return found, again


def refusals(daemon: DaemonProcess, quota: str) -> int:
    page = get(f"http://{metrics_address(daemon)}/metrics")
    series = f'plumbline_quota_refusals_total{{project="small",quota="{quota}"}}'
    [value] = re.findall(rf"^{re.escape(series)} (\d+)$", page, re.MULTILINE)
    assert 'plumbline_quota_refusals_total{project="large"' not in page
    return int(value)


def holds(daemon: DaemonProcess, mebibytes: float) -> None:
    """Waits until the daemon holds so much of steps."""
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        page = get(f"http://{metrics_address(daemon)}/metrics")
        [held] = re.findall(r"^plumbline_worker_memory_bytes (\S+)$", page, re.MULTILINE)
        if float(held) >= mebibytes * (1 << 20):
            return
        assert time.monotonic() < deadline, f"{held} bytes are held, expected {mebibytes} MiB"


def refused(stream: Stream, quota: str) -> None:
    error = stream.next("error")
    assert error.status.code == code_pb2.RESOURCE_EXHAUSTED
    assert error.status.message.startswith('project "small": expected at most ') and quota in error.status.message
    assert subjects(error.status) == (["project:small"], True)


def with_payload(step: int, mebibytes: float) -> list[audit_pb2.AuditRequest]:
    """A step without its end, which holds so much."""
    chunk = 1 << 19
    total = int(mebibytes * (1 << 20))
    frames = [StepFrames(step).begin()]
    for offset in range(0, total, chunk):
        part = bytes(min(chunk, total - offset))
        frames.append(frame(data=trace_pb2.TensorData(payload=9, offset=offset, total=total, data=part)))
    return frames


def test_streams(new_daemon: NewDaemon, tmp_path: Path) -> None:
    daemon = limited(new_daemon, tmp_path, "streams: 1")
    client = Client(daemon.address)
    first = client.stream("a", project="small")
    send(first, type_i(0))
    assert refusals(daemon, "streams") == 0
    second = client.stream("b", project="small")
    assert second.end() == grpc.StatusCode.RESOURCE_EXHAUSTED
    told = status_pb2.Status.FromString(dict(second.call.trailing_metadata())["grpc-status-details-bin"])
    assert subjects(told) == (["project:small"], True)
    assert refusals(daemon, "streams") == 1
    others = [client.stream(run, project="large") for run in ("a", "b", "c")]
    for stream in (*others, first):
        send(stream, type_i(1))
    first.close()
    third = client.stream("b", project="small")
    send(third, type_i(0))
    # A new policy counts for who comes after it.
    write(tmp_path / "policy", "streams: 2")
    assert daemon.process
    daemon.process.send_signal(signal.SIGHUP)
    while "were read again" not in daemon.log():
        assert daemon.alive()
    send(client.stream("c", project="small"), type_i(0))
    assert client.stream("d", project="small").end() == grpc.StatusCode.RESOURCE_EXHAUSTED
    client.close()


def test_bytes_in_flight(new_daemon: NewDaemon, tmp_path: Path) -> None:
    daemon = limited(new_daemon, tmp_path, f"bytes_in_flight: {1 << 20}")
    client = Client(daemon.address)
    one, two = (client.stream(run, project="small") for run in ("a", "b"))
    one.send(*with_payload(0, 0.75))
    holds(daemon, 0.75)
    two.send(*with_payload(0, 0.75))
    refused(two, "bytes_in_flight")
    other = client.stream("a", project="large")
    other.send(*with_payload(0, 3))
    holds(daemon, 3.75)
    send(client.stream("b", project="large"), type_i(0))
    one.send(frame(step_end=audit_pb2.StepEnd(frames=999)))  # It is wrong, and gives back what it held.
    one.next("error")
    two.send(frame(step_end=audit_pb2.StepEnd(frames=1)))
    send(two, type_i(1))
    # Alone too large, a step is refused for good.
    two.send(*with_payload(2, 1.5), frame(step_end=audit_pb2.StepEnd(frames=5)))
    error = two.next("error")
    assert error.status.code == code_pb2.RESOURCE_EXHAUSTED and subjects(error.status) == (["project:small"], False)
    assert refusals(daemon, "bytes_in_flight") == 2
    client.close()


def test_bytes_in_flight_of_a_job(new_daemon: NewDaemon, tmp_path: Path) -> None:
    daemon = limited(new_daemon, tmp_path, f"bytes_in_flight: {3 << 20} job_bytes_in_flight: {1 << 20}")
    client = Client(daemon.address)
    one, two = (client.stream(run, "one", project="small") for run in ("a", "b"))
    other = client.stream("a", "two", project="small")
    one.send(*with_payload(0, 0.75))
    holds(daemon, 0.75)
    two.send(*with_payload(0, 0.75))
    error = two.next("error").status
    assert error.code == code_pb2.RESOURCE_EXHAUSTED and subjects(error) == (["job:small/one"], True)
    assert f'job "small/one": expected at most {1 << 20} job_bytes_in_flight' in error.message
    assert (refusals(daemon, "job_bytes_in_flight"), refusals(daemon, "bytes_in_flight")) == (1, 0)
    other.send(*with_payload(0, 0.75))
    holds(daemon, 1.5)

    [project] = [each for each in query_stub(client).GetServerInfo(ASK).projects if each.project == "small"]
    used = {each.job: {quota.name: quota.used for quota in each.quotas} for each in project.jobs}
    assert used.keys() == {"one", "two"}
    for quotas in used.values():
        assert quotas.keys() == {"job_bytes_in_flight"} and 0.75 * (1 << 20) <= quotas["job_bytes_in_flight"] < 1 << 20
    [whole] = [quota.used for quota in project.quotas if quota.name == "bytes_in_flight"]
    assert whole == sum(quotas["job_bytes_in_flight"] for quotas in used.values())

    one.send(frame(step_end=audit_pb2.StepEnd(frames=999)))  # It is wrong, and gives back what it held.
    one.next("error")
    two.send(frame(step_end=audit_pb2.StepEnd(frames=1)))
    send(two, type_i(1))
    # Alone too large, a step is refused for good.
    two.send(*with_payload(2, 1.5), frame(step_end=audit_pb2.StepEnd(frames=5)))
    error = two.next("error").status
    assert error.code == code_pb2.RESOURCE_EXHAUSTED and subjects(error) == (["job:small/one"], False)
    client.close()


def test_steps_queued(new_daemon: NewDaemon, tmp_path: Path) -> None:
    daemon = limited(new_daemon, tmp_path, "steps_queued: 1", "--reference-timeout=8s")
    client = Client(daemon.address)
    waits = client.stream("candidate", project="small", reference_run="reference")
    waits.send(*type_i(0).frames())
    waits.received()
    other = client.stream("another", project="small")
    other.send(*type_i(0).frames())
    refused(other, "steps_queued")
    send(client.stream("a", project="large"), type_i(0))
    assert waits.next("verdict").step == 0  # Its reference does not come.
    send(other, type_i(1))
    assert refusals(daemon, "steps_queued") == 1
    client.close()


def test_stored_verdicts(new_daemon: NewDaemon, tmp_path: Path) -> None:
    daemon = limited(new_daemon, tmp_path, "verdicts: 3")
    client = Client(daemon.address)

    def fill(job: str) -> int:
        """Steps until one is refused: how many were taken."""
        stream = client.stream("run", job, project="small")
        for step in range(1000):
            stream.send(*type_i(step).frames())
            if stream.next_of("verdict", "error").HasField("error"):
                stream.close()
                return step
        raise AssertionError("no step was refused")

    assert fill("first") == 3
    send(client.stream("run", project="large"), *map(type_i, range(5)))
    client.close()
    # What was stored is counted again when the daemon starts.
    daemon.terminate()
    assert daemon.wait() == 0
    daemon.start()
    client = Client(daemon.address)
    fill("second")
    stub = query_stub(client)
    for job in ("first", "second"):
        stub.DeleteJob(query_pb2.DeleteJobRequest(project="small", job=job))
    assert fill("third") == 3
    client.close()


def test_a_job_has_limits_within_its_project(new_daemon: NewDaemon, tmp_path: Path) -> None:
    daemon = limited(new_daemon, tmp_path, "streams: 3 job_streams: 2 job_verdicts: 3")
    client = Client(daemon.address)
    a, b = (client.stream(run, "one", project="small") for run in ("a", "b"))
    send(a, type_i(0))
    send(b, type_i(0))
    third = client.stream("c", "one", project="small")
    assert third.end() == grpc.StatusCode.RESOURCE_EXHAUSTED
    details = status_pb2.Status.FromString(dict(third.call.trailing_metadata())["grpc-status-details-bin"])
    assert subjects(details) == (["job:small/one"], True)
    assert 'job "small/one": expected at most 2 job_streams' in details.message
    assert (refusals(daemon, "job_streams"), refusals(daemon, "streams")) == (1, 0)
    other = client.stream("a", "two", project="small")
    send(other, type_i(0))

    send(a, type_i(1))
    a.send(*type_i(2).frames())
    error = a.next("error").status
    assert error.code == code_pb2.RESOURCE_EXHAUSTED and subjects(error) == (["job:small/one"], True)
    assert refusals(daemon, "job_verdicts") == 1
    send(other, type_i(1), type_i(2))

    [project] = [each for each in query_stub(client).GetServerInfo(ASK).projects if each.project == "small"]
    jobs = {each.job: {quota.name: (quota.limit, quota.used) for quota in each.quotas} for each in project.jobs}
    assert jobs == {
        "one": {"job_streams": (2, 2), "job_verdicts": (3, 3)},
        "two": {"job_streams": (2, 1), "job_verdicts": (3, 3)},
    }
    client.close()


def test_queued_steps_of_a_job(new_daemon: NewDaemon, tmp_path: Path) -> None:
    daemon = limited(new_daemon, tmp_path, "job_steps_queued: 1", "--reference-timeout=8s")
    client = Client(daemon.address)
    waits = client.stream("candidate", "one", project="small", reference_run="reference")
    waits.send(*type_i(0).frames())
    waits.received()
    same = client.stream("another", "one", project="small")
    same.send(*type_i(0).frames())
    error = same.next("error").status
    assert error.code == code_pb2.RESOURCE_EXHAUSTED and subjects(error) == (["job:small/one"], True)
    send(client.stream("another", "two", project="small"), type_i(0))
    assert waits.next("verdict").step == 0  # Its reference does not come.
    send(same, type_i(1))
    client.close()


def told(info: query_pb2.ServerInfo) -> dict[str, dict[str, tuple[int, int]]]:
    """Limit and use of each quota, by project."""
    return {
        project.project: {quota.name: (quota.limit, quota.used) for quota in project.quotas}
        for project in info.projects
    }


def test_limits_and_their_use_are_told_to_who_may_read(new_daemon: NewDaemon, tmp_path: Path) -> None:
    quotas = (
        'quotas {{ projects: "small" streams: 5 bytes_in_flight: 9000000 steps_queued: 7 verdicts: {verdicts} '
        'kept_trace_bytes: 2000000 }} quotas {{ projects: "*" streams: 3 }}\n'
        f'projects: "small" projects: "large" grants {{{{ projects: "small" roles: READ users: "{NOBODY}" }}}}\n'
    )
    policy = tmp_path / "policy"
    policy.write_text(quotas.format(verdicts=100))
    daemon = new_daemon(
        f"--policy={policy}", "--metrics-listen=127.0.0.1:0", "--socket-mode=0666", "--reference-timeout=300s"
    )
    daemon.directory.chmod(0o711)
    client = Client(daemon.address)
    stub = query_stub(client)
    idle = {"streams": (5, 0), "bytes_in_flight": (9000000, 0), "steps_queued": (7, 0)}
    stored = {"verdicts": (100, 0), "kept_trace_bytes": (2000000, 0)}
    assert told(stub.GetServerInfo(ASK)) == {"small": idle | stored, "large": {"streams": (3, 0)}}

    stream = client.stream("a", project="small")
    send(stream, type_i(0), type_ii(1))
    stream.send(*with_payload(2, 0.75))
    holds(daemon, 0.75)
    waits = client.stream("b", project="small", reference_run="none")
    waits.send(*type_i(0).frames())
    waits.received()
    send(client.stream("a", project="unnamed"), type_i(0))
    deadline = time.monotonic() + WAIT_S_MAX
    while (use := told(stub.GetServerInfo(ASK)))["small"]["steps_queued"] != (7, 1):  # What was answered is let go.
        assert time.monotonic() < deadline, use
    assert use["large"] == {"streams": (3, 0)} and use["unnamed"] == {"streams": (3, 1)}
    assert use["small"]["streams"] == (5, 2) and use["small"]["verdicts"] == (100, 2)
    assert 0.75 * (1 << 20) <= use["small"]["bytes_in_flight"][1] < 9000000
    assert 0 < use["small"]["kept_trace_bytes"][1] < 2000000

    theirs = [
        set(
            as_user(
                daemon.address,
                "info = verdicts.GetServerInfo(query_pb2.GetServerInfoRequest())\n"
                "found = [each.project for each in info.projects if info.version]",
                user=user,
            )
        )
        for user in (NOBODY, NOBODY - 1)
    ]
    assert theirs == [{"small"}, set()]

    policy.write_text(quotas.format(verdicts=1))
    assert daemon.process
    daemon.process.send_signal(signal.SIGHUP)
    while "were read again" not in daemon.log():
        assert daemon.alive()
    assert told(stub.GetServerInfo(ASK))["small"]["verdicts"] == (1, 2)
    client.close()
    daemon.kill()  # A step that waits for its reference would hold up the end.
    daemon.start()
    client = Client(daemon.address)
    after = told(query_stub(client).GetServerInfo(ASK))["small"]
    assert after["verdicts"] == (1, 2) and after["streams"] == (5, 0) and after["bytes_in_flight"][1] == 0
    client.close()


@pytest.mark.parametrize(
    ("quota", "wrong"),
    [
        ("streams: 0", "line 2: quotas.streams: expected at least 1, found 0"),
        ("", "line 2: quotas.streams: expected a limit"),
        ('projects: "other" streams: 1', 'line 2: quotas.projects: expected "*" or one of `projects`, found "other"'),
        ("streams: many", "line 2, column 37"),
        ("job_verdicts: 0", "line 2: quotas.job_verdicts: expected at least 1, found 0"),
        ("job_bytes_in_flight: 1", "line 2: quotas.job_bytes_in_flight: expected at least 1048576, found 1"),
    ],
)
def test_a_wrong_quota_is_refused(quota: str, wrong: str, tmp_path: Path) -> None:
    policy = write(tmp_path / "policy", quota)
    for more in ([], ["--check-config"]):
        command = [binary(), f"--listen=unix:{tmp_path}/s", f"--data-dir={tmp_path}/data", f"--policy={policy}", *more]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 1 and wrong in ran.stderr, ran.stderr
