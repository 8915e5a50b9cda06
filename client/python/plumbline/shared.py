"""Memory that the daemon on the same node can read: payloads captured into it are sent as places, not as bytes."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import torch

REGION = 1  # Its id on every stream: there is one.
SHARED_BYTES_MIN = 16 << 10  # A smaller payload costs less in the message than a read by the daemon.


def wanted() -> bool:
    return os.environ.get("PLUMBLINE_SHARED_MEMORY", "") != "0"


class SharedMemory:
    """A memfd, mapped as a whole, that takes its memory block by block. It has no name: it goes with its last holder,
    however that one ends. Raises OSError where there can be none. Not thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self.descriptor = os.memfd_create("plumbline")
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, bytes_max)
        self.inode = os.fstat(self.descriptor).st_ino
        self.bytes_max = bytes_max
        self._used = 0
        with torch._C._DisableTorchDispatch():
            self._memory = torch.frombuffer(mmap.mmap(self.descriptor, bytes_max), dtype=torch.uint8)
        self._address = self._memory.data_ptr()

    def take(self, count: int) -> torch.Tensor | None:
        """A block that no earlier call gave; None where there is no room."""
        count = -(-count // mmap.PAGESIZE) * mmap.PAGESIZE
        if count > self.bytes_max - self._used:
            return None
        try:
            # Where memory is short this fails; the first touch of a page without memory would kill the process.
            os.posix_fallocate(self.descriptor, self._used, count)
        except OSError:
            return None
        start, self._used = self._used, self._used + count
        with torch._C._DisableTorchDispatch():
            return self._memory[start : start + count]

    def holds(self, block: torch.Tensor) -> bool:
        return 0 <= block.data_ptr() - self._address < self.bytes_max

    def offset(self, view: memoryview) -> int | None:
        """Where in the memfd the view, which is not empty, starts; None where it lies elsewhere."""
        offset = ctypes.addressof(ctypes.c_char.from_buffer(view)) - self._address
        return offset if 0 <= offset < self.bytes_max else None
