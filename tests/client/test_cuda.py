"""Content that stays on the device until the daemon takes it, with a runtime that has no device: the host's memory
stands for it. Reading it by the daemon is tested in tests/unit/ingest; nothing here has run on a device."""

import ctypes
import logging
from typing import Any

import pytest
import torch
from test_shared import train

from plumbline import cuda, daemon, payload, transport
from plumbline.cuda import BLOCK_BYTES, DeviceMemory
from plumbline.encode import encode_step
from plumbline.payload import Arena, Pool
from plumbline.v1 import audit_pb2


class Runtime:
    """What of the CUDA runtime is used, on host memory."""

    def __init__(self, free: int = 1 << 40) -> None:
        self.free, self.memory, self.freed, self.copies = free, b"", 0, 0

    def cudaMemGetInfo(self, free: Any, total: Any) -> int:
        free._obj.value = total._obj.value = self.free
        return 0

    def cudaMalloc(self, address: Any, size: Any) -> int:
        self.memory = ctypes.create_string_buffer(size.value)
        address._obj.value = ctypes.addressof(self.memory)
        return 0

    def cudaIpcGetMemHandle(self, handle: Any, address: Any) -> int:
        handle.raw = b"h" * 64
        return 0

    def cudaMemcpyAsync(self, to: Any, source: Any, size: Any, kind: int, stream: Any) -> int:
        self.copies += 1
        return self.cudaMemcpy(to, source, size, kind)

    def cudaMemcpy(self, to: Any, source: Any, size: Any, kind: int) -> int:
        ctypes.memmove(to, source, size.value)
        return 0

    def cudaFree(self, address: Any) -> int:
        self.freed += 1
        return 0


class Stream:
    cuda_stream = 7

    def synchronize(self) -> None:
        pass


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The host's tensors count as a device's."""
    fake = Runtime()
    monkeypatch.setattr(payload, "STAGED", ("cpu",))
    monkeypatch.setattr(cuda, "current_stream", lambda device: Stream())
    monkeypatch.setattr(cuda, "open_memory", lambda device, size: DeviceMemory(fake, device, b"u" * 16, size))
    return fake


def staged_pool(bytes_max: int) -> Pool:
    pool = Pool()
    pool.staging_bytes = bytes_max
    return pool


def test_places_on_the_device_hold_the_content(runtime: Runtime) -> None:
    arena = Arena(staged_pool(BLOCK_BYTES))
    arena.copy_tensor(torch.zeros(3))
    content = torch.arange(10_000).reshape(100, 100).t()
    records = [("data", 7, arena.copy_tensor(content))]
    messages = encode_step(records, 0, region_chunk_bytes_max=30_000, device=arena._pool.device)
    sent = [audit_pb2.AuditRequest.FromString(message).data for message in messages][1:-1]
    assert {data.region for data in sent} == {cuda.REGION} and sum(data.length for data in sent) == 80_000
    read = b"".join(runtime.memory[data.region_offset : data.region_offset + data.length] for data in sent)
    assert read == content.contiguous().numpy().tobytes()
    messages = encode_step(records, 0)  # As where the daemon does not take it.
    sent = [audit_pb2.AuditRequest.FromString(message).data for message in messages][1:-1]
    assert b"".join(data.data for data in sent) == read


def test_without_room_content_goes_through_the_host(runtime: Runtime) -> None:
    pool = staged_pool(BLOCK_BYTES)
    first, second = Arena(pool), Arena(pool)
    content = torch.zeros(BLOCK_BYTES // 8)
    assert isinstance(first.copy_tensor(content), cuda.Staged)
    assert isinstance(second.copy_tensor(content), memoryview)
    assert isinstance(first.copy_tensor(torch.zeros(BLOCK_BYTES)), memoryview)  # Larger than a block.
    first.release()
    assert isinstance(Arena(pool).copy_tensor(content), cuda.Staged)


def test_a_device_without_memory_to_spare_is_left_alone(runtime: Runtime) -> None:
    runtime.free = 2 * BLOCK_BYTES
    arena = Arena(staged_pool(BLOCK_BYTES))
    assert isinstance(arena.copy_tensor(torch.zeros(3)), memoryview)
    assert not runtime.memory


def test_a_daemon_without_a_device_is_sent_the_host_s_copy(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PLUMBLINE_CUDA_STAGING_MIB", "64")
    with daemon.private() as address:
        plain, _ = train(None, "")
        assert train(address, "asked")[1] == ["TYPE_I"] * 3
        assert runtime.copies == 0  # The daemon's plan says that it takes none.

        plan_of = transport.plan_of

        def taken_for_granted(plan: audit_pb2.CapturePlan) -> Any:
            made = plan_of(plan)
            made.cuda_regions = True
            return made

        monkeypatch.setattr(transport, "plan_of", taken_for_granted)
        with caplog.at_level(logging.INFO, "plumbline"):
            watched, verdicts = train(address, "refused")
    assert verdicts == ["TYPE_I"] * 3
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert runtime.copies > 0 and runtime.freed == 1
    assert "this daemon has no CUDA device" in caplog.text
