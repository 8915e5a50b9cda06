"""Payloads in shared memory: judged as if they had come in chunks; what is wrong with them is said, and fails alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import code_pb2
from stream_client import Client, StepFrames, Stream, floats, frame, violations
from stream_daemon import DaemonProcess, binary

from plumbline.v1 import audit_pb2, trace_pb2, verdict_pb2

SIZE = 4096


@pytest.fixture
def memory() -> Iterator[int]:
    fd = os.memfd_create("test")
    os.ftruncate(fd, SIZE)
    os.pwrite(fd, floats(1.0, 2.0), 64)
    yield fd
    os.close(fd)


def region(memory: int, number: int = 1, **fields: int) -> audit_pb2.AuditRequest:
    file = os.fstat(memory)
    given = {"process": os.getpid(), "fd": memory, "inode": file.st_ino, "size": file.st_size, **fields}
    return frame(region=audit_pb2.Region(region=number, **given))


def place(**fields: int) -> audit_pb2.AuditRequest:
    given = {"payload": 1, "total": 8, "region": 1, "region_offset": 64, "length": 8, **fields}
    return frame(data=trace_pb2.TensorData(**given))


def shared_step(step: int, **fields: int) -> StepFrames:
    made = StepFrames(step)
    made.data[0] = place(**fields)
    return made


def register(stream: Stream, message: audit_pb2.AuditRequest) -> tuple[int, list[tuple[str, str]]]:
    stream.send(message)
    status = stream.next("region").status
    return status.code, violations(status)


def file_links(process: int) -> list[str]:
    folder = Path(f"/proc/{process}/fd")
    return [os.readlink(link) for link in folder.iterdir() if link.is_symlink()]


def test_a_step_in_shared_memory_has_the_digest_of_one_in_chunks(client: Client, run: str, memory: int) -> None:
    stream = client.stream(run)
    assert client.open(run).plan.region_chunk_bytes_max == 8 << 20
    assert register(stream, region(memory)) == (code_pb2.OK, [])
    stream.send(*shared_step(0).frames())
    verdict = stream.next("verdict")
    assert verdict.verdict == verdict_pb2.OUTCOME_TYPE_I
    stream.send(*StepFrames(0).frames())  # The same identity with another digest would be an error.
    assert stream.next("verdict") == verdict
    assert stream.close() == grpc.StatusCode.OK


def test_what_is_written_after_the_ack_changes_no_verdict(client: Client, run: str, memory: int) -> None:
    stream = client.stream(run)
    register(stream, region(memory))
    frames = shared_step(0).frames()
    stream.send(*frames[:-1])
    stream.send(region(memory, number=2))  # Its answer comes after everything before it was taken.
    stream.next("region")
    os.pwrite(memory, floats(5.0, 5.0), 64)
    stream.send(frame(drop_region=1), frames[-1])
    assert stream.next("verdict").verdict == verdict_pb2.OUTCOME_TYPE_I


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"region": 2}, "data.region"),
        ({"region_offset": SIZE}, "data.length"),
        ({"region_offset": SIZE + 1}, "data.region_offset"),
        ({"region_offset": 2**64 - 4}, "data.region_offset"),
        ({"length": 2**64 - 8, "total": 2**64 - 8}, "data.length"),
        ({"length": 0}, "data.length"),
        ({"length": 9}, "data.length"),
        ({"total": 2**63}, "data.total"),
        ({"offset": 8}, "data.offset"),
        ({"payload": 0}, "data.payload"),
    ],
)
def test_a_wrong_place_fails_its_step(client: Client, run: str, memory: int, fields: dict[str, int], name: str) -> None:
    stream = client.stream(run)
    register(stream, region(memory))
    stream.send(*shared_step(0, **fields).frames())
    error = stream.next("error")
    assert [field for field, _ in violations(error.status)] == [name], error
    stream.send(*shared_step(1).frames())
    assert stream.next("verdict").step == 1


def test_a_region_that_shrinks_fails_its_step(client: Client, run: str, memory: int) -> None:
    stream = client.stream(run)
    register(stream, region(memory))
    os.ftruncate(memory, 68)
    stream.send(*shared_step(0).frames())
    ((name, description),) = violations(stream.next("error").status)
    assert name == "data.length" and "only 4: the region has shrunk" in description
    os.ftruncate(memory, 0)
    stream.send(*shared_step(1).frames())
    stream.next("error")
    stream.send(*StepFrames(2).frames())
    assert stream.next("verdict").step == 2


def test_a_dropped_region_is_unknown(client: Client, run: str, memory: int) -> None:
    stream = client.stream(run)
    register(stream, region(memory))
    stream.send(frame(drop_region=1), *shared_step(0).frames())
    assert [field for field, _ in violations(stream.next("error").status)] == ["data.region"]
    stream.send(frame(drop_region=1))
    assert stream.end() == grpc.StatusCode.INVALID_ARGUMENT
    assert stream.violations()[0][0] == "drop_region"


def test_registered_wrongly(client: Client, run: str, memory: int, tmp_path: Path) -> None:
    stream = client.stream(run)

    def refused(message: audit_pb2.AuditRequest) -> tuple[int, str]:
        code, ((name, _),) = register(stream, message)
        return code, name

    inode = os.fstat(memory).st_ino
    assert refused(region(memory, size=SIZE + 1)) == (code_pb2.INVALID_ARGUMENT, "region.size")
    assert refused(region(memory, inode=inode + 1)) == (code_pb2.INVALID_ARGUMENT, "region.inode")
    assert refused(region(memory, fd=-1)) == (code_pb2.INVALID_ARGUMENT, "region.fd")
    assert refused(region(memory, fd=100000)) == (code_pb2.FAILED_PRECONDITION, "region.fd")
    assert refused(region(memory, process=0)) == (code_pb2.INVALID_ARGUMENT, "region.process")
    assert refused(region(memory, number=0)) == (code_pb2.INVALID_ARGUMENT, "region.region")
    with (tmp_path / "file").open("wb+") as file:
        file.write(bytes(8))
        file.flush()
        assert refused(region(file.fileno())) == (code_pb2.INVALID_ARGUMENT, "region.fd")
    assert register(stream, region(memory)) == (code_pb2.OK, [])
    assert refused(region(memory)) == (code_pb2.INVALID_ARGUMENT, "region.region")
    stream.send(*shared_step(0).frames())
    assert stream.next("verdict").verdict == verdict_pb2.OUTCOME_TYPE_I


def test_without_a_cuda_worker_memory_of_a_device_is_refused(client: Client, run: str, memory: int) -> None:
    assert not client.open(run).plan.cuda_regions
    stream = client.stream(run)
    handle = audit_pb2.CudaMemory(device=bytes(16), handle=bytes(64))
    stream.send(frame(region=audit_pb2.Region(region=1, process=os.getpid(), size=8, cuda=handle)))
    status = stream.next("region").status
    assert status.code == code_pb2.FAILED_PRECONDITION
    assert violations(status) == [
        ("region.cuda", "region.cuda: expected a memfd: this daemon has no CUDA device, found memory of a CUDA device")
    ]
    assert register(stream, region(memory)) == (code_pb2.OK, [])
    stream.send(*shared_step(0).frames())
    assert stream.next("verdict").verdict == verdict_pb2.OUTCOME_TYPE_I


def test_an_ack_says_that_a_region_was_let_go_of(client: Client, run: str, memory: int) -> None:
    stream = client.stream(run)
    assert register(stream, region(memory)) == (code_pb2.OK, [])
    stream.send(frame(drop_region=1))
    stream.wait(lambda: any(each.HasField("ack") and each.ack.received >= stream.sent for each in stream))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give memory to another user")
def test_memory_of_another_user_is_refused(client: Client, run: str, memory: int) -> None:
    os.fchown(memory, 65534, -1)
    stream = client.stream(run)
    code, ((name, description),) = register(stream, region(memory))
    assert (code, name) == (code_pb2.PERMISSION_DENIED, "region.fd") and "user 65534" in description


def test_only_over_a_unix_socket(tmp_path: Path, memory: int) -> None:
    flags = ["--listen=127.0.0.1:0", "--insecure", f"--data-dir={tmp_path}/data"]
    process = subprocess.Popen([binary(), *flags], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        client = Client(process.stdout.readline().split("listens on ")[1].split(";")[0])
        assert client.open().plan.region_chunk_bytes_max == 0
        stream = client.stream()
        code, ((name, description),) = register(stream, region(memory))
        assert (code, name) == (code_pb2.FAILED_PRECONDITION, "region") and "unix socket" in description
        stream.send(*StepFrames(0).frames())
        assert stream.next("verdict").step == 0
        client.close()
    finally:
        process.terminate()
        assert process.wait(60) == 0


DIES = """
import os, signal, sys
sys.path[:0] = {path!r}
from stream_client import Client, frame
from test_shared_memory import SIZE, region, register, shared_step
fd = os.memfd_create("dies")
os.ftruncate(fd, SIZE)
stream = Client({address!r}).stream({run!r})
assert register(stream, region(fd))[0] == 0
stream.send(*shared_step(0).frames()[:-1], region(fd, number=2))
stream.next("region")  # So the step is open there.
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_outlives_a_client_that_dies_in_a_step(
    new_daemon: Callable[..., DaemonProcess], run: str, memory: int
) -> None:
    daemon = new_daemon()
    script = DIES.format(path=[*sys.path], address=daemon.address, run=run)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -9, ended.stderr
    assert daemon.process is not None
    client = Client(daemon.address)
    while True:  # Until the daemon has seen the end too: then the run is free.
        stream = client.stream(run)
        stream.send(region(memory))
        stream.wait(lambda stream=stream: stream._done or any(each.HasField("region") for each in stream))
        if not stream._done:
            break
        assert stream.end() == grpc.StatusCode.ALREADY_EXISTS
    assert not [link for link in file_links(daemon.process.pid) if "memfd:dies" in link]
    assert [link for link in file_links(daemon.process.pid) if "memfd:test" in link]
    stream.send(*shared_step(0).frames())
    assert stream.next("verdict").verdict == verdict_pb2.OUTCOME_TYPE_I
    client.close()
