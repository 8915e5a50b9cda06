"""Kernels that this machine does not have (TF32, Triton, tensor cores) or that compute wrongly: a mode that lies below
the capture, so that the capture sees the plain operation with the other kernel's result.

A scenario gives `device` as its device, and its target says where which kernels run:

    with kernels(products(tf32(4))):
        y = a @ b
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

# (what the operation gave, its arguments): what the kernel gives. It writes by itself what is written in place.
Kernel = Callable[..., Any]

_running: dict[Any, Kernel] = {}


class _Device(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        kernel = _running.get(func)
        first = out[0] if isinstance(out, tuple) else out
        # The oracle's fp64 stays what it is.
        return out if kernel is None or first.dtype == torch.float64 else kernel(out, *args, **(kwargs or {}))


@contextlib.contextmanager
def device() -> Iterator[None]:
    with _Device():
        yield


@contextlib.contextmanager
def kernels(replaced: dict[Any, Kernel]) -> Iterator[None]:
    global _running
    before, _running = _running, replaced
    try:
        yield
    finally:
        _running = before


def truncated(x: Tensor, bits: int) -> Tensor:
    """fp32 numbers without their last `bits` bits; 13 gives TF32 as its units read it."""
    return (x.contiguous().view(torch.int32) & -(1 << bits)).view(torch.float32)


def tensor_core(a: Tensor, b: Tensor, k: int) -> Tensor:
    """a @ b in fp32 as matrix units add: k products at a time, aligned with the sum so far and cut off at fp32's 24
    bits (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021)."""
    a, b = a.double(), b.double()
    total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=torch.float64)
    for low in range(0, a.shape[-1], k):
        terms = a[..., :, low : low + k, None] * b[..., None, low : low + k, :]
        terms = torch.cat([terms, total.unsqueeze(-2)], -2)
        unit = torch.exp2(torch.frexp(terms.abs().amax(-2, keepdim=True)).exponent.double() - 24)
        total = ((terms / unit).trunc() * unit).sum(-2).float().double()
    return total.float()


def tf32(k: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: tensor_core(truncated(a, 13), truncated(b, 13), k)


def half(k: int) -> Callable[[Tensor, Tensor], Tensor]:
    """fp16 or bf16 operands, a sum in fp32."""
    return lambda a, b: tensor_core(a.float(), b.float(), k)


def products(multiply: Callable[[Tensor, Tensor], Tensor]) -> dict[Any, Kernel]:
    """Kernels of all matrix products, from one that multiplies and gives fp32."""

    def product(out: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return multiply(a, b).to(out.dtype)

    def biased(out: Tensor, bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (multiply(a, b) + bias.float()).to(out.dtype)

    return {aten.mm.default: product, aten.bmm.default: product, aten.addmm.default: biased}
