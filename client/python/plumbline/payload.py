"""Copies of tensor contents, taken at once into memory that is reused from step to step.

First touch of fresh memory costs tens of times more than its reuse, so the blocks of a step that was sent go back to
a pool and serve the next one.
"""

from __future__ import annotations

import ctypes
import logging
import threading

import torch

from . import cuda
from .cuda import DeviceMemory, Stage, Staged
from .shared import SharedMemory

log = logging.getLogger("plumbline")

BLOCK_BYTES = 32 << 20
ALIGNMENT = 64
STAGED = ("cuda",)  # Kinds of devices whose content may stay there until the daemon takes it.

Content = memoryview | Staged
_HOST = torch.device("cpu")


class Pool:
    """Blocks of host memory, shared by the steps of a job. Thread-safe."""

    def __init__(self, bytes_max: int = 4 << 30) -> None:
        self._lock = threading.Lock()
        self._free: list[torch.Tensor] = []
        self._free_bytes = 0
        self._bytes_max = bytes_max
        self.shared: SharedMemory | None = None  # New blocks come from it, as long as it has room.
        self.staging_bytes = 0  # That the daemon's reading of device memory may take of the device.
        self.device: DeviceMemory | None = None

    def share(self) -> None:
        """Takes new blocks from memory that the daemon can read. Raises OSError where there can be none."""
        if self.shared is None:
            self.shared = SharedMemory(self._bytes_max)

    def staging(self, device: torch.device) -> DeviceMemory | None:
        """Memory on that device which the daemon can read; only one device of a process has any."""
        if not self.staging_bytes or device.type not in STAGED:
            return None
        if self.device is None:
            try:
                self.device = cuda.open_memory(device, self.staging_bytes)
            except (OSError, RuntimeError, ValueError, AttributeError) as error:
                log.info("plumbline: no memory of %s to share, its content is copied to the host: %s", device, error)
                self.staging_bytes = 0
                return None
        return self.device if self.device.device == device and not self.device.closed else None

    def take(self, count: int) -> torch.Tensor:
        """A block of at least `count` bytes, its content undefined."""
        with self._lock:
            fitting = [
                (not self._is_shared(block), len(block), index)
                for index, block in enumerate(self._free)
                if len(block) >= count
            ]
            if fitting:
                block = self._free.pop(min(fitting)[-1])
                self._free_bytes -= len(block)
                return block
            block = self.shared.take(max(count, BLOCK_BYTES)) if self.shared is not None else None
            if block is not None:
                return block
        with torch._C._DisableTorchDispatch():
            return torch.empty(max(count, BLOCK_BYTES), dtype=torch.uint8, device="cpu")

    def give(self, blocks: list[torch.Tensor]) -> None:
        """Takes blocks back. Beyond the limit they are freed, except shared ones, which are bounded anyway."""
        with self._lock:
            for block in blocks:
                if self._is_shared(block) or self._free_bytes + len(block) <= self._bytes_max:
                    self._free.append(block)
                    self._free_bytes += len(block)

    def _is_shared(self, block: torch.Tensor) -> bool:
        return self.shared is not None and self.shared.holds(block)


class Arena:
    """The payloads of one step, bump-allocated from blocks of a pool. Not thread-safe."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._blocks: list[torch.Tensor] = []
        self._views: list[memoryview] = []
        self._used = 0
        self._room = 0
        self._address = 0
        self._stage: Stage | None = None
        self.bytes = 0
        self.away: set[torch.device] = set()  # Devices that content was copied from.

    def _take(self, count: int) -> tuple[int, memoryview]:
        if count > self._room:
            block = self._pool.take(count)
            self._blocks.append(block)
            with torch._C._DisableTorchDispatch():
                self._views.append(memoryview(block.numpy()))
            self._address = block.data_ptr()
            self._used, self._room = 0, len(block)
        start = self._used
        padded = min(self._room, -(-count // ALIGNMENT) * ALIGNMENT)
        self._used += padded
        self._room -= padded
        self.bytes += count
        return self._address + start, self._views[-1][start : start + count]

    def copy_memory(self, address: int, count: int) -> memoryview:
        """Copies `count` bytes of host memory at `address`. No memory (PyTorch's zero tensors): zeros."""
        target, view = self._take(count)
        if address:
            ctypes.memmove(target, address, count)
        else:
            ctypes.memset(target, 0, count)
        return view

    def _staged(self, address: int, count: int, device: torch.device) -> Staged | None:
        """Copies device memory on its device, where there is room."""
        if self._stage is None:
            memory = self._pool.staging(device)
            if memory is None:
                return None
            self._stage = Stage(memory)
        content = self._stage.copy(address, count) if self._stage.device == device else None
        if content is not None:
            self.bytes += count
        return content

    def copy_storage(self, storage: torch.UntypedStorage, start: int, count: int, on_host: bool = False) -> Content:
        """Copies bytes [start, start + count) of a storage on any device."""
        if self._pool.staging_bytes and not on_host:
            content = self._staged(storage.data_ptr() + start, count, storage.device)
            if content is not None:
                return content
        if storage.device == _HOST:
            return self.copy_memory(storage.data_ptr() + start, count)
        self.away.add(storage.device)
        with torch._C._DisableTorchDispatch():
            flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            host = flat[start : start + count].cpu()
        return self.copy_memory(host.data_ptr(), count)

    def copy_tensor(self, tensor: torch.Tensor) -> Content:
        """Copies a tensor's elements, row-major."""
        count = tensor.numel() * tensor.element_size()
        if tensor.is_cpu and tensor.is_contiguous() and not self._pool.staging_bytes:
            return self.copy_memory(tensor.data_ptr(), count)
        with torch._C._DisableTorchDispatch():
            tensor = tensor.detach().contiguous()
        if (content := self._staged(tensor.data_ptr(), count, tensor.device)) is not None:
            return content
        if not tensor.is_cpu:
            self.away.add(tensor.device)
        with torch._C._DisableTorchDispatch():
            tensor = tensor.cpu()
        return self.copy_memory(tensor.data_ptr(), count)

    def copy_positive_side(self, tensor: torch.Tensor) -> Content:
        """One byte an element, row-major: 1 where the element is greater than 0."""
        with torch._C._DisableTorchDispatch():
            side = tensor.detach().gt(0)
        return self.copy_tensor(side)

    def release(self) -> None:
        """Returns the memory to the pool. Views of it must not be used afterwards."""
        self._views.clear()
        self._pool.give(self._blocks)
        self._blocks = []
        self._room = 0
        if self._stage is not None:
            self._stage.release()
            self._stage = None
