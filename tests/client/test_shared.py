"""Captured steps in memory that the daemon reads: the same verdicts, and a way back to messages."""

import os
import re
import socket
import threading
import urllib.request

import pytest
import torch
from torch import nn

import plumbline
from plumbline import daemon, shared
from plumbline.encode import encode_step
from plumbline.payload import BLOCK_BYTES, Arena, Pool
from plumbline.v1 import audit_pb2, trace_pb2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bytes_received(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'^plumbline_ingest_bytes_total\{transport="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {transport: float(value) for transport, value in found}


def train(address: str | None, job: str, steps: int = 3) -> tuple[list[torch.Tensor], list[str]]:
    """Trains, watched unless there is no address; the weights at the end and the verdicts."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(torch.randn(8, 128)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    verdicts: list[str] = []
    if address is None:
        for _ in range(steps):
            step()
    else:
        with plumbline.watch(model, optimizer, address, job=job, every=1) as audit:
            for _ in range(steps):
                with audit.step():
                    step()
                assert audit.flush(60)
            assert not audit.errors()
            verdicts = [verdict.verdict for verdict in audit.verdicts()]
    return [parameter.detach().clone() for parameter in model.parameters()], verdicts


def test_the_daemon_reads_what_was_captured_and_no_bit_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with daemon.private(f"--metrics-listen=127.0.0.1:{port}") as address:
        plain, _ = train(None, "")
        watched, verdicts = train(address, "shared")
        assert verdicts == ["TYPE_I"] * 3
        by_shared = bytes_received(port)
        parameter_bytes = 4 * 128 * 256
        assert by_shared["shared_memory"] >= 3 * parameter_bytes > by_shared["grpc"]
        monkeypatch.setenv("PLUMBLINE_SHARED_MEMORY", "0")
        chunked, verdicts = train(address, "chunked")
        assert verdicts == ["TYPE_I"] * 3
        by_chunks = bytes_received(port)
        assert by_chunks["shared_memory"] == by_shared["shared_memory"]
        assert by_chunks["grpc"] - by_shared["grpc"] >= 3 * parameter_bytes
    for each in (watched, chunked):
        assert all(torch.equal(a, b) for a, b in zip(plain, each, strict=True))


def test_refused_memory_is_sent_as_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    init = shared.SharedMemory.__init__

    def foreign(self: shared.SharedMemory, bytes_max: int) -> None:
        init(self, bytes_max)
        self.inode += 1  # As where the daemon sees other processes under our numbers.

    monkeypatch.setattr(shared.SharedMemory, "__init__", foreign)
    with daemon.private(f"--metrics-listen=127.0.0.1:{port}") as address:
        assert train(address, "refused")[1] == ["TYPE_I"] * 3
        assert bytes_received(port)["shared_memory"] == 0


def test_without_memory_to_share_steps_are_sent_as_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError("no memory")

    for missing in ("memfd_create", "posix_fallocate"):
        with monkeypatch.context() as patched, daemon.private() as address:
            patched.setattr(os, missing, fail)
            assert train(address, missing)[1] == ["TYPE_I"] * 3


def test_memory_that_moves_into_huge_pages_keeps_what_is_written() -> None:
    memory = shared.SharedMemory(256 << 20)
    sizes = [BLOCK_BYTES, 3 * 4096, 5 << 20, BLOCK_BYTES + 4096]
    blocks = []
    for size in sizes:
        block = memory.take(size)
        assert block is not None
        blocks.append(block.fill_(len(blocks) + 1))
    for _ in range(shared._STEPS_BEFORE):
        memory.gather()
    moving = threading.Thread(target=memory.gather)
    moving.start()
    written = 0
    while moving.is_alive() or not written:
        blocks[0].fill_(written % 251)
        written += 1
    moving.join()
    memory.gather()
    expected = [(written - 1) % 251, 2, 3, 4]
    for block, number, size in zip(blocks, expected, sizes, strict=True):
        assert len(block) == size and bool((block == number).all())
        assert os.pread(memory.descriptor, size, block.data_ptr() - blocks[0].data_ptr()) == bytes([number]) * size
    assert os.fstat(memory.descriptor).st_blocks * 512 == sum(sizes)  # No memory but what was taken.
    more = memory.take(BLOCK_BYTES)
    assert more is not None and not bool(more.any())


def frames(arena: Arena, content: torch.Tensor, chunk_bytes_max: int) -> list[trace_pb2.TensorData]:
    records = [("data", 7, arena.copy_tensor(content))]
    messages = encode_step(records, 0, shared=arena._pool.shared, region_chunk_bytes_max=chunk_bytes_max)
    return [audit_pb2.AuditRequest.FromString(message).data for message in messages][1:-1]


def test_full_memory_falls_back_to_messages() -> None:
    pool = Pool(bytes_max=BLOCK_BYTES)
    pool.share()
    content = torch.arange(BLOCK_BYTES // 8)
    first, second = Arena(pool), Arena(pool)
    assert [data.region for data in frames(first, content, BLOCK_BYTES)] == [shared.REGION]
    assert all(data.data for data in frames(second, content, BLOCK_BYTES))  # There is no second block.
    second.release()
    first.release()
    again = Arena(pool)
    assert [data.region for data in frames(again, content, BLOCK_BYTES)] == [shared.REGION]  # Shared again.


def test_places_hold_the_content() -> None:
    pool = Pool(bytes_max=2 * BLOCK_BYTES)
    pool.share()
    arena = Arena(pool)
    arena.copy_memory(0, 1000)
    content = torch.arange(10_000)
    sent = frames(arena, content, 30_000)
    assert [(data.offset, data.length, data.total) for data in sent] == [
        (0, 30_000, 80_000),
        (30_000, 30_000, 80_000),
        (60_000, 20_000, 80_000),
    ]
    assert pool.shared is not None
    read = b"".join(os.pread(pool.shared.descriptor, data.length, data.region_offset) for data in sent)
    assert read == content.numpy().tobytes()
    assert all(data.data for data in frames(arena, torch.arange(100), 30_000))  # Small: in the message.
