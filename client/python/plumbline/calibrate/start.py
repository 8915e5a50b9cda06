"""What the processor at hand does beyond its profile, found in a third of a second when a client starts."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import PlumblineError
from . import arithmetic
from .formats import BF16, FP16
from .measure import Calibration, Calibrator
from .profiles import load, with_headroom

CPU = torch.device("cpu")
COUNT = 2**12  # Numbers a range.
ULP_MAX = 4096  # What the daemon takes, that of its widest profile.
UNKNOWN = "unknown"
_log = logging.getLogger("plumbline")


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """The framework's defaults, whatever the program has set for its own operations, and none of what watches those."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with _disable_current_modes(), torch.no_grad(), torch.autocast("cpu", enabled=False), CPU:
            yield
    finally:
        torch.set_default_dtype(dtype)


@contextlib.contextmanager
def _in_one_thread() -> Iterator[None]:
    """Operations of this thread use no other: for small ones those only wait for each other in turns, which takes
    seconds where other programs want the cores. OpenMP keeps the count for each thread by itself;
    torch.set_num_threads would also leave a mark on MKL's, by which a training might round otherwise."""
    threads = torch.get_num_threads()  # Which sets this thread's, where nothing has.
    count = getattr(ctypes.CDLL(torch._C.__file__), "omp_set_num_threads", None)  # None: built without OpenMP.
    if count is None:
        yield
        return
    count(1)
    try:
        yield
    finally:
        count(threads)


def products_flush() -> bool:
    """Whether products of bf16 elements may count what is subnormal as zero. Where oneDNN is off, whose kernels may, it
    may yet be on for some of a program."""
    with _plainly():
        off = torch.backends.mkldnn.is_available() and not torch._C._get_mkldnn_enabled()
        return off or arithmetic.product_flushes(CPU, BF16) is not None


def widened(name: str) -> str:
    """The profile of that name, with options for what was found beyond it: "pytorch-cpu-avx2+log=1.5". `unknown`, of
    which every figure takes its widest legal value, where no option says it, or measuring failed."""
    with _plainly():
        flushes = arithmetic.flushes(CPU) is not None
    return _widened(name, flushes, torch._C._get_mkldnn_enabled(), fp32_precisions())


def fp32_precisions() -> tuple[str, ...]:
    """What the program allows products, convolutions and recurrent layers on a CPU to do with fp32 elements."""
    kinds = [getattr(torch.backends.mkldnn, kind, None) for kind in ("matmul", "conv", "rnn")]
    if any(hasattr(kind, "fp32_precision") for kind in kinds):  # Asking for the legacy name may raise beside this one.
        return tuple(str(getattr(kind, "fp32_precision", "none")) for kind in kinds)
    return (torch.get_float32_matmul_precision(),)


@functools.cache
def _widened(name: str, *_flags: object) -> str:
    try:
        claims = load(name)
    except PlumblineError:  # Profiles lie beside the daemon, which may be elsewhere.
        return name
    try:
        with _plainly(), _in_one_thread():
            calibrator = Calibrator(claims, CPU, True, 1)
            calibrator.count, calibrator.lengths = COUNT, (64,)
            found = options(calibrator.run())
    except Exception as failure:  # Never into a training.
        _log.warning("profile %s could not be held against this processor: %s", name, failure)
        return UNKNOWN
    if found is None:
        _log.warning("this processor does what profile %s does not allow", name)
        return UNKNOWN
    return "+".join([name, *found])


def options(calibration: Calibration) -> list[str] | None:
    """Options of a profile's name that permit what its claims were refuted by; None: there are none for it."""
    found = []
    for finding in calibration.contradictions:
        kind, _, function = finding.claim.partition(".")
        if finding.claim == "flush_subnormals" or (kind == "products" and function.endswith(".flushes")):
            found.append("flush")
        elif finding.claim == "tf32_allowed" and arithmetic.input_bits(CPU)[0] >= FP16.precision:
            found.append("tf32")
        elif kind == "functions" and "." not in function and with_headroom(finding.measured) <= ULP_MAX:
            found.append(f"{function}={with_headroom(finding.measured):g}")
        else:
            return None
    return sorted(set(found))
