"""A trace id leads from a step in the client to its verdict and to the daemon's log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from query_support import query_stub, run_plumb, send, type_i, type_ii
from stream_client import Client, StepFrames, data, leaf
from stream_daemon import DaemonProcess

import plumbline
from plumbline.v1 import query_pb2

A, B, C, D = (f"{number:032x}" for number in (1, 2, 3, 0xD << 124))


def events(daemon: DaemonProcess) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, daemon.log().splitlines()) if "event" in line]


def named(step: StepFrames, trace_id: str) -> StepFrames:
    step.trace_id = trace_id
    return step


def test_it_is_in_the_verdict_and_in_each_line_of_the_step(new_daemon: Callable[..., DaemonProcess], run: str) -> None:
    daemon = new_daemon("--log-format=json", "--trace-quota=8KiB")
    client = Client(daemon.address)
    stream = client.stream(run)
    (first,) = send(stream, named(type_ii(0), A))
    assert first.trace_id == A
    broken = named(StepFrames(1), B)
    broken.op.op.arguments[0].tensor.value = 99
    stream.send(*broken.frames())
    stream.next("error")
    stream.send(*named(StepFrames(2, x=(1.0, 3.0)), C).frames())
    assert stream.next("verdict").trace_id == C
    stream.send(*named(StepFrames(2, x=(1.0, 4.0)), D).frames())  # The number again with another content.
    stream.next("error")
    stream.close()
    client.close()
    explained = run_plumb(daemon, "explain", first.id, "--json")
    assert json.loads(explained.stdout)["trace_id"] == A
    assert A in run_plumb(daemon, "explain", first.id).stdout
    lines = [(line["event"], line.get("trace_id")) for line in events(daemon)]
    assert ("type_ii", A) in lines and ("step_refused", B) in lines and ("step_refused", D) in lines

    daemon.kill()  # What is evicted later is known by its file alone.
    daemon.start()
    client = Client(daemon.address)
    big = type_ii(4)
    big.extra = [leaf(9, 1024, 9), *data(9, bytes(4096))]
    send(client.stream(run), named(big, B))
    client.close()
    evicted = {line["step"]: line["trace_id"] for line in events(daemon) if line["event"] == "trace_evicted"}
    assert evicted == {first.id: A, f"default/job/{run}/0/4": B}


def test_steps_are_found_by_it(new_daemon: Callable[..., DaemonProcess], run: str) -> None:
    daemon = new_daemon()
    client = Client(daemon.address)
    stub = query_stub(client)
    stream = client.stream(run)
    send(stream, named(type_i(0), A), named(type_ii(1), B), type_i(2))
    broken = named(StepFrames(3), C)
    broken.op.op.arguments[0].tensor.value = 99
    stream.send(*broken.frames())
    stream.next("error")
    stream.send(*named(StepFrames(1, x=(1.0, 4.0)), D).frames())
    stream.next("error")
    stream.close()

    def found(trace_id: str) -> list[int]:
        asked = query_pb2.ListVerdictsRequest(filter=query_pb2.Filter(trace_id=trace_id))
        return [verdict.step for verdict in stub.ListVerdicts(asked).verdicts]

    def errors() -> list[tuple[int, str]]:
        return [(e.step, e.trace_id) for e in stub.ListErrors(query_pb2.ListErrorsRequest(job="job")).errors]

    assert [found(trace_id) for trace_id in (A, B, C, D)] == [[0], [1], [], []]
    assert errors() == [(1, D), (3, C)]
    ran = run_plumb(daemon, "verdicts", "--trace_id", B, "--json")
    assert ran.returncode == 2 and [json.loads(line)["trace_id"] for line in ran.stdout.splitlines()] == [B]
    assert run_plumb(daemon, "verdicts", "--trace_id", C).returncode == 0
    wrong = run_plumb(daemon, "verdicts", "--trace_id", A[:-1])
    assert wrong.returncode == 1 and "filter.trace_id: expected 32 lowercase hexadecimal digits" in wrong.stderr
    client.close()
    daemon.kill()
    daemon.start()
    client = Client(daemon.address)
    stub = query_stub(client)
    assert found(A) == [0] and errors() == [(1, D), (3, C)]
    client.close()


def test_a_step_of_an_older_client_has_none(client: Client, run: str) -> None:
    stream = client.stream(run)
    (verdict,) = send(stream, type_i(0))
    assert verdict.trace_id == ""


def test_a_step_that_is_sent_again_is_answered_as_it_was(client: Client, run: str) -> None:
    stream = client.stream(run)
    send(stream, named(type_i(0), A))
    (again,) = send(stream, named(type_i(0), B))
    assert again.trace_id == A


def test_of_several_ranks_it_is_the_first_that_has_one(client: Client, run: str) -> None:
    streams = [client.stream(run, rank=rank, ranks=2) for rank in range(2)]
    for stream, trace_id in zip(streams, ("", B), strict=True):
        stream.send(*named(StepFrames(0), trace_id).frames())
    assert [stream.next("verdict").trace_id for stream in streams] == [B, B]


def test_the_client_makes_one_for_each_audited_step(shared_daemon: DaemonProcess, run: str) -> None:
    model = torch.nn.Linear(2, 1)
    with plumbline.watch(model, None, shared_daemon.address, job=f"job-{run}", every=1) as audit:
        for _ in range(2):
            with audit.step():
                model(torch.ones(1, 2)).sum().backward()
        assert audit.flush(60)
        first, second = (verdict.trace_id for verdict in audit.verdicts())
    assert len(first) == len(second) == 32 and first != second
    for number, trace_id in enumerate((first, second)):
        ran = run_plumb(shared_daemon, "verdicts", "--job", f"job-{run}", "--step_min", str(number), "--json")
        assert json.loads(ran.stdout.splitlines()[0])["trace_id"] == trace_id


def test_a_job_names_its_steps_itself(shared_daemon: DaemonProcess, run: str) -> None:
    given = f"{int(run.removeprefix('run-'), 16):032x}"
    model = torch.nn.Linear(2, 1)
    with plumbline.watch(model, None, shared_daemon.address, job=f"job-{run}", every=1) as audit:
        for trace_id in (None, given):
            with audit.step(trace_id=trace_id):
                model(torch.ones(1, 2)).sum().backward()
        assert audit.flush(60)
        assert [verdict.step for verdict in audit.verdicts() if verdict.trace_id == given] == [1]
        assert not audit.errors()
    ran = run_plumb(shared_daemon, "verdicts", "--trace_id", given, "--json")
    [line] = ran.stdout.splitlines()
    assert json.loads(line)["id"].endswith("/0/1")
