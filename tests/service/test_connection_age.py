"""Connections that nobody uses, or that are too old, end; nothing that a client audits is lost by it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import torch
from observability import get
from query_support import metrics_address, plumb, query_stub, send, type_i
from stream_client import WAIT_S_MAX, Client, StepFrames, Stream
from stream_daemon import DaemonProcess, binary

import plumbline
from plumbline.v1 import query_pb2

NewDaemon = Callable[..., DaemonProcess]


def limits(daemon: DaemonProcess) -> dict[str, int]:
    client = Client(daemon.address)
    info = query_stub(client).GetServerInfo(query_pb2.GetServerInfoRequest())
    client.close()
    return {limit.name: limit.value for limit in info.limits if limit.name.startswith("connection_")}


def test_limits_are_told(new_daemon: NewDaemon) -> None:
    assert limits(new_daemon()) == {"connection_idle_ms_max": 300_000}
    daemon = new_daemon("--connection-idle-timeout=7s", "--connection-age=2h")
    assert limits(daemon) == {
        "connection_idle_ms_max": 7_000,
        "connection_age_ms_max": 7_200_000,
        "connection_age_grace_ms_max": 7_200_000 + 420_000,
    }


def test_a_connection_without_calls_is_closed(new_daemon: NewDaemon) -> None:
    daemon = new_daemon("--connection-idle-timeout=1s")
    with socket.socket(socket.AF_UNIX) as idle:
        idle.settimeout(WAIT_S_MAX)
        idle.connect(daemon.address.removeprefix("unix:"))
        idle.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        while idle.recv(4096):
            pass


def test_training_loses_no_step(new_daemon: NewDaemon) -> None:
    daemon = new_daemon("--connection-age=1s")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps, deadline = 0, time.monotonic() + WAIT_S_MAX
    with plumbline.watch(model, optimizer, daemon.address, job="ages", every=1) as audit:
        while daemon.log().count("run_opened") < 4:
            assert time.monotonic() < deadline, daemon.log()
            with audit.step():
                ((model(torch.randn(4, 8)) - 1) ** 2).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            steps += 1
            # As fast as steps are judged: what the client has no room for it drops, with any daemon.
            assert audit.flush(WAIT_S_MAX)
    assert (audit.missed(), audit.errors()) == (0, {})
    assert [verdict.step for verdict in audit.verdicts()] == list(range(steps))


def test_an_open_step_and_those_before_it_are_answered(new_daemon: NewDaemon) -> None:
    daemon = new_daemon("--connection-age=1s")
    client = Client(daemon.address)
    stream = client.stream("open")
    send(stream, type_i(0))
    begin, *rest = type_i(1).frames()
    stream.send(begin)
    idle = client.stream("idle")
    assert idle.end() == grpc.StatusCode.OK, "it has nothing open"
    stream.send(*rest)
    assert stream.next("verdict").step == 1
    assert stream.end() == grpc.StatusCode.OK
    again = client.stream("open")  # On the same channel, which has another connection by now.
    send(again, type_i(2))
    client.close()


def opened(client: Client, *names: str) -> Stream:
    """A stream that has begun: one may be opened on a connection just as that is cut."""
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        try:
            stream = client.stream(*names)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            continue
        stream.wait(lambda stream=stream: stream.credit() > 0 or not stream.call.is_active())
        if stream.credit() > 0:
            return stream
        assert stream.end() in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
    raise AssertionError("no stream began")


def judged(stream: Stream, step: int) -> bool:
    """Sends a step. False: the stream ended and left it to the next one."""
    stream.send(*StepFrames(step).frames())
    stream.wait(lambda: not stream.call.is_active() or any(each.HasField("verdict") for each in stream))
    if not any(each.HasField("verdict") for each in stream):
        return False
    assert stream.next("verdict").step == step
    return True


def test_a_step_that_comes_too_late_is_the_next_streams(new_daemon: NewDaemon) -> None:
    """Its client cannot know that the daemon reads no more: it sees the stream's end or, if it was just sending, a
    connection that is closed. The run goes on where it was."""
    daemon = new_daemon("--connection-age=1s")
    client = Client(daemon.address)
    step, streams = 0, 0
    while streams < 3:
        stream = opened(client, "late")
        streams += 1
        while judged(stream, step):
            step += 1
        assert stream.end() in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
    assert step > 3
    client.close()


def test_what_goes_on_for_too_long_is_cut(new_daemon: NewDaemon) -> None:
    daemon = new_daemon(
        *("--connection-age=1s", "--step-timeout=1s", "--reference-timeout=1s", "--audit-timeout=1s"),
    )
    client = Client(daemon.address)
    watch = query_stub(client).WatchVerdicts(query_pb2.WatchVerdictsRequest(), timeout=WAIT_S_MAX)
    with pytest.raises(grpc.RpcError) as cut:
        next(watch)
    assert cut.value.code() == grpc.StatusCode.UNAVAILABLE
    client.close()


class PlumbWatch:
    """`plumb watch --json` in a process of its own, whose lines are read as they come."""

    def __init__(self, daemon: DaemonProcess, *flags: str) -> None:
        command = [str(plumb()), "watch", "--json", "--past", f"--server={daemon.address}", *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._lines: list[str] = []
        self._begun = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.append(line)
            self._begun.set()

    def begun(self) -> None:
        """Waits for the first step."""
        assert self._begun.wait(WAIT_S_MAX)

    def steps(self) -> tuple[list[int], int, str]:
        """All of them, once it has ended: with its exit status, and what it said of errors."""
        status = self._process.wait(WAIT_S_MAX)
        self._reader.join(WAIT_S_MAX)
        assert self._process.stderr
        return [int(json.loads(line)["step"]) for line in self._lines], status, self._process.stderr.read()


def watches_ended(daemon: DaemonProcess) -> int:
    page = get(f"http://{metrics_address(daemon)}/metrics")
    found = re.findall(r'^grpc_server_handled_total\{[^}]*"WatchVerdicts"[^}]*\} (\d+)$', page, re.MULTILINE)
    return sum(map(int, found))


def test_plumb_watch_outlives_its_connections(new_daemon: NewDaemon) -> None:
    daemon = new_daemon(
        *("--connection-age=1s", "--step-timeout=1s", "--reference-timeout=1s", "--audit-timeout=1s"),
        "--metrics-listen=127.0.0.1:0",
    )
    client = Client(daemon.address)
    steps = 200
    watch = PlumbWatch(daemon, "--job=watched", f"--count={steps}")
    step, stream, deadline = 0, opened(client, "run", "watched"), time.monotonic() + WAIT_S_MAX
    while step < steps:
        # The last steps come only when connections of the watch were cut under it.
        if step < steps - 20 or watches_ended(daemon) >= 2:
            if judged(stream, step):
                step += 1
            else:
                stream = opened(client, "run", "watched")
        assert time.monotonic() < deadline, f"{watches_ended(daemon)} watches ended, {step} steps were judged"
    assert watch.steps() == (list(range(steps)), 0, "")
    client.close()


def test_plumb_watch_outlives_the_daemon(new_daemon: NewDaemon) -> None:
    daemon = new_daemon()
    rounds, each = 4, 25
    watch = PlumbWatch(daemon, f"--count={rounds * each}")
    for number in range(rounds):
        client = Client(daemon.address)
        stream = client.stream()
        send(stream, *map(type_i, range(number * each, (number + 1) * each)))
        if number == 0:
            watch.begun()
        client.close()
        if number % 2 == 0:
            daemon.kill()
        else:
            daemon.terminate()
            assert daemon.wait() == 0
        daemon.start()
    assert watch.steps() == (list(range(rounds * each)), 0, "")


def test_a_watch_is_not_gone_on_with_at_another_daemon(new_daemon: NewDaemon) -> None:
    one, other = new_daemon(), new_daemon()
    client, there = Client(one.address), Client(other.address)
    send(client.stream(), type_i(0))
    watch = query_stub(client).WatchVerdicts(query_pb2.WatchVerdictsRequest(include_past=True), timeout=WAIT_S_MAX)
    token = next(watch).resume_token
    for request, code in (
        (query_pb2.WatchVerdictsRequest(resume_token=token), grpc.StatusCode.ABORTED),
        (query_pb2.WatchVerdictsRequest(resume_token="x"), grpc.StatusCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(grpc.RpcError) as wrong:
            next(query_stub(there).WatchVerdicts(request, timeout=WAIT_S_MAX))
        assert wrong.value.code() == code and wrong.value.details().startswith("resume_token: ")
    client.close()
    there.close()


@pytest.mark.parametrize("flag", ["--connection-idle-timeout", "--connection-age"])
def test_too_short_an_age_is_refused(flag: str, tmp_path: Path) -> None:
    command = [binary(), f"--listen=unix:{tmp_path}/s", f"--data-dir={tmp_path}/data", f"{flag}=10ms", "--check-config"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1 and f"{flag}: expected a second at least, found 10ms" in ran.stderr
