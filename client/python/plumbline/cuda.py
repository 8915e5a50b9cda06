"""Memory on a CUDA device that the daemon opens by its handle (CUDA IPC): what is captured there costs the training a
copy on the device, and no wait for the host. It has hardly run on a device, so that it must be asked for:
PLUMBLINE_CUDA_STAGING_MIB names the memory that it may take of the device."""

from __future__ import annotations

import ctypes
import os
import re
import threading
import uuid
from pathlib import Path
from typing import Any

import torch

REGION = 2  # Its id on every stream, beside shared memory's.
BLOCK_BYTES = 16 << 20
ALIGNMENT = 256
_FREE_TIMES_MIN = 4  # So many times what is taken must be free: the rest is the training's.
_DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 2, 3  # cudaMemcpyKind


def wanted() -> int:
    """Bytes of the device that may be taken; 0: none."""
    given = os.environ.get("PLUMBLINE_CUDA_STAGING_MIB", "")
    return int(given) << 20 if given.isdecimal() else 0


def open_memory(device: torch.device, bytes_max: int) -> DeviceMemory:
    """Memory of a device that tensors live on. Raises OSError where there can be none."""
    found = re.search(r"/\S*libcudart[^/\s]*\.so\S*", Path("/proc/self/maps").read_text())  # That PyTorch has loaded.
    if found is None:
        raise OSError("the CUDA runtime was not found in this process")
    name = uuid.UUID(str(torch.cuda.get_device_properties(device).uuid)).bytes
    with torch.cuda.device(device):
        return DeviceMemory(ctypes.CDLL(found.group()), device, name, bytes_max)


def current_stream(device: torch.device) -> Any:
    return torch.cuda.current_stream(device)


class DeviceMemory:
    """One allocation, lent block by block. By cudaMalloc: a handle names a whole allocation, and PyTorch's hold other
    tensors too (in expandable segments they have no handle at all). Thread-safe. Raises OSError where there can be
    none."""

    def __init__(self, library: Any, device: torch.device, device_uuid: bytes, bytes_max: int) -> None:
        self._library, self.device, self.uuid = library, device, device_uuid
        self._lock = threading.Lock()
        self._streams: set[Any] = set()
        self.size = bytes_max // BLOCK_BYTES * BLOCK_BYTES
        self._free = list(range(0, self.size, BLOCK_BYTES))
        self.closed = False  # The daemon does not take it, or it is gone: nothing more is lent.
        free, total, address = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
        self._check(library.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
        if not self.size or free.value < _FREE_TIMES_MIN * self.size:
            raise OSError(f"{bytes_max} bytes of staging: {free.value} of the device's {total.value} are free")
        self._check(library.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(self.size)))
        self._address = address.value or 0
        handle = ctypes.create_string_buffer(64)
        self._check(library.cudaIpcGetMemHandle(handle, address))
        self.handle = handle.raw

    def _check(self, status: int) -> None:
        if status:
            raise OSError(f"CUDA error {status}")

    def take(self) -> int | None:
        """Where a block starts that nobody else has; None where there is none left."""
        with self._lock:
            return self._free.pop() if self._free and not self.closed else None

    def give(self, starts: list[int]) -> None:
        with self._lock:
            self._free.extend(starts)

    def copy(self, address: int, count: int, start: int) -> bool:
        """Queues a copy of device memory to `start`, behind the work that the calling thread has queued."""
        stream = current_stream(self.device)
        with self._lock:
            self._streams.add(stream)
        to, source, size = ctypes.c_void_p(self._address + start), ctypes.c_void_p(address), ctypes.c_size_t(count)
        queue = ctypes.c_void_p(stream.cuda_stream)
        return self._library.cudaMemcpyAsync(to, source, size, _DEVICE_TO_DEVICE, queue) == 0

    def wait(self) -> None:
        """Until everything that was queued is there. Not for the training's thread."""
        with self._lock:
            streams, self._streams = self._streams, set()
        for stream in streams:
            stream.synchronize()

    def read(self, start: int, count: int) -> memoryview:
        """What was copied to `start`, on the host."""
        host = bytearray(count)
        view = (ctypes.c_char * count).from_buffer(host)
        source = ctypes.c_void_p(self._address + start)
        self._check(self._library.cudaMemcpy(view, source, ctypes.c_size_t(count), _DEVICE_TO_HOST))
        return memoryview(host)

    def free(self) -> None:
        """Only once the daemon has let go of it."""
        with self._lock:
            self.closed = True
            address, self._address = self._address, 0
            if address:
                self._library.cudaFree(ctypes.c_void_p(address))


class Staged:
    """A payload in device memory."""

    def __init__(self, memory: DeviceMemory, start: int, count: int) -> None:
        self.memory, self.start, self._count = memory, start, count

    def __len__(self) -> int:
        return self._count

    def on_host(self) -> memoryview:
        self.memory.wait()
        return self.memory.read(self.start, self._count)


class Stage:
    """The payloads of one step, bump-allocated from blocks of device memory. Not thread-safe."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self.device = memory.device
        self._blocks: list[int] = []
        self._at = self._end = 0

    def copy(self, address: int, count: int) -> Staged | None:
        """None where there is no room: a payload lies in one block."""
        if count > self._end - self._at:
            block = self._memory.take() if count <= BLOCK_BYTES else None
            if block is None:
                return None
            self._blocks.append(block)
            self._at, self._end = block, block + BLOCK_BYTES
        start = self._at
        if not self._memory.copy(address, count, start):
            return None
        self._at = min(self._end, start + -(-count // ALIGNMENT) * ALIGNMENT)
        return Staged(self._memory, start, count)

    def release(self) -> None:
        self._memory.give(self._blocks)
        self._blocks, self._at, self._end = [], 0, 0
