"""Operations that CUDA builds of PyTorch alone dispatch get kernels for the CPU, which a test can make wrong."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

fault: dict[str, float] = {}  # What is wrong, and by how much.


@contextlib.contextmanager
def wrong(name: str, by: float = 1) -> Iterator[None]:
    fault[name] = by
    try:
        yield
    finally:
        fault.clear()


@contextlib.contextmanager
def on_the_cpu(kernels: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Kernels of aten's operations by their names."""
    library = torch.library.Library("aten", "IMPL", "CPU")
    for name, kernel in kernels.items():
        library.impl(name, kernel, "CPU", allow_override=True)
    try:
        yield
    finally:
        library._destroy()
