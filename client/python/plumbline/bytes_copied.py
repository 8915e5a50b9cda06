"""Memory that is copied byte by byte, as copy.deepcopy copies a tensor's: a copy of what it is known to hold."""

from __future__ import annotations

from typing import Any

import torch

from .schema import DTYPES
from .storages import StorageTable

_COPY = torch.ops.aten.copy_.default
_DTYPE_OF = {code: dtype for dtype, code in DTYPES.items()}


def _whole(tensor: Any) -> bool:
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.dtype is torch.uint8
        and tensor.dim() == 1
        and tensor.is_contiguous()
        and tensor.numel() == tensor.untyped_storage().nbytes()
    )


def as_held(storages: StorageTable, func: Any, args: Any) -> Any:
    """The arguments of an operation; of one that copies all bytes of some memory, both sides in the element type that
    the one is known in."""
    if func is not _COPY or not _whole(args[0]) or not _whole(args[1]) or args[0].numel() != args[1].numel():
        return args
    known = storages.entry(args[1])
    if known is None:
        return args
    dtype = _DTYPE_OF[known.dtype] if known.value else known.met
    if dtype is torch.uint8 or args[0].numel() % dtype.itemsize:
        return args
    return tuple(
        torch.empty(0, dtype=dtype, device=side.device).set_(side.untyped_storage()) for side in args[:2]
    ) + tuple(args[2:])
