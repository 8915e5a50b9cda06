"""Memory that the daemon on the same node can read: payloads captured into it are sent as places, not as bytes."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import torch

REGION = 1  # Its id on every stream: there is one.
SHARED_BYTES_MIN = 16 << 10  # A smaller payload costs less in the message than a read by the daemon.

_HUGE_PAGE = 2 << 20
_GATHERED_AT_ONCE = 64 << 20  # Some tenths of a second.
_STEPS_BEFORE = 2  # To gather takes as long as so many steps gain by it: short runs do without.
_COLLAPSE = 25  # MADV_COLLAPSE, of Linux 6.1, which Python does not name.
_MAP_FIXED = 0x10
_PROT_NONE = 0
_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


def wanted() -> bool:
    return os.environ.get("PLUMBLINE_SHARED_MEMORY", "") != "0"


def _collapse(descriptor: int, start: int, count: int) -> None:
    """Moves that part of the file, whole huge pages that all have memory, into huge pages, whoever has it mapped. Where
    the system has none the file stays as it is."""
    # A mapping of its own, since huge pages must lie as evenly in the address space as in the file.
    room = _libc.mmap(None, count + _HUGE_PAGE, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if room == _FAILED:
        return
    even = -(-room // _HUGE_PAGE) * _HUGE_PAGE
    if _libc.mmap(even, count, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, descriptor, start) == even:
        _libc.madvise(even, count, _COLLAPSE)
    _libc.munmap(room, count + _HUGE_PAGE)


class SharedMemory:
    """A memfd, mapped as a whole, that takes its memory block by block. It has no name: it goes with its last holder,
    however that one ends. Raises OSError where there can be none. `gather` may run beside the others, which are not
    thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self.descriptor = os.memfd_create("plumbline")
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, bytes_max)
        self.inode = os.fstat(self.descriptor).st_ino
        self.bytes_max = bytes_max
        self._used = 0
        self._gathered = 0  # So much from the beginning is in huge pages.
        self._sent = 0  # Steps, as far as that matters.
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

    def gather(self) -> None:
        """A step was sent. After the first ones puts some more of what was taken into huge pages: to look up small ones
        takes the daemon longer than to copy what they hold. Takes its time, once for each block."""
        if self._sent < _STEPS_BEFORE:
            self._sent += 1
            return
        start = self._gathered
        end = min(self._used // _HUGE_PAGE * _HUGE_PAGE, start + _GATHERED_AT_ONCE)
        if start < end:
            self._gathered = end
            _collapse(self.descriptor, start, end - start)

    def holds(self, block: torch.Tensor) -> bool:
        return 0 <= block.data_ptr() - self._address < self.bytes_max

    def offset(self, view: memoryview) -> int | None:
        """Where in the memfd the view, which is not empty, starts; None where it lies elsewhere."""
        offset = ctypes.addressof(ctypes.c_char.from_buffer(view)) - self._address
        return offset if 0 <= offset < self.bytes_max else None
