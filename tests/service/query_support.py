"""Verdicts of each kind, made by real streams, and the places of what the tests run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from stream_client import Client, StepFrames, Stream
from stream_daemon import DaemonProcess, binary

from plumbline.v1 import audit_pb2, query_pb2_grpc, verdict_pb2


def plumb() -> Path:
    """The plumb command of the build that the daemon comes from."""
    return binary().parents[1] / "client" / "cpp" / "plumb"


def run_plumb(daemon: DaemonProcess, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PLUMBLINE_SERVER": daemon.address}
    command = [str(plumb()), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, **options)


def metrics_address(daemon: DaemonProcess) -> str:
    """HOST:PORT of /metrics and /healthz, as the daemon's start-up line has it."""
    found = re.search(r"metrics on ([^;\s]+)", daemon.log())
    assert found, daemon.log()
    return found.group(1)


def query_stub(client: Client) -> query_pb2_grpc.VerdictServiceStub:
    return query_pb2_grpc.VerdictServiceStub(client.channel)


def type_i(step: int) -> StepFrames:
    return StepFrames(step)


def inconclusive(step: int) -> StepFrames:
    """Its one operation is of a kind that nobody models, and its result was not sent."""
    frames = StepFrames(step)
    frames.op.op.name = "mylib::mystery"
    return frames


def type_ii(step: int) -> StepFrames:
    """Its addition gives 4.5 for 2 + 2, seen in the operation's own output."""
    frames = StepFrames(step, y=(2.0, 4.5))
    frames.outputs = True
    frames.op.op.results[0].observed = 2
    return frames


class ChainFrames(StepFrames):
    """x is added `length` times to itself, but that addition number `multiplies` (from 1 on; 0: none) multiplies."""

    def __init__(self, step: int, length: int, multiplies: int = 0) -> None:
        x, y = (1.0, 2.0, 3.0), [1.0, 2.0, 3.0]
        for i in range(1, length + 1):
            y = [a * b if i == multiplies else a + b for a, b in zip(y, x, strict=True)]
        super().__init__(step, x, tuple(y))
        self.ops = []
        for i in range(1, length + 1):
            each = audit_pb2.AuditRequest()
            each.CopyFrom(self.op)
            op = each.op
            op.source, op.module = f"{'target' if multiplies else 'reference'}.py:{i}", f"layers.{i}"
            op.arguments[0].tensor.value = i
            op.results[0].tensor.value = i + 1
            if i == multiplies:
                op.name = "aten::mul.Tensor"
                del op.arguments[2]
            self.ops.append(each)
        self.tap.tap.terms[0].tensor.value = length + 1

    def body(self) -> list[audit_pb2.AuditRequest]:
        return [self.leaf, *self.ops, self.tap, *self.data, *self.extra]


def paired(client: Client, job: str, length: int, multiplies: int) -> verdict_pb2.Verdict:
    """A step of one program beside another's that multiplies in one place, and adds in all others."""
    reference = client.stream("reference", job, reference=True)
    send(reference, ChainFrames(0, length))
    target = client.stream("target", job, reference_run="reference")
    (verdict,) = send(target, ChainFrames(0, length, multiplies))
    for stream in (target, reference):
        stream.close()
    return verdict


def send(stream: Stream, *steps: StepFrames) -> list[verdict_pb2.Verdict]:
    """Sends the steps one after the other; their verdicts."""
    verdicts = []
    for step in steps:
        stream.send(*step.frames())
        verdicts.append(stream.next("verdict"))
    return verdicts
