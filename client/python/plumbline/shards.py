"""Tensors that the ranks of a run hold in parts (DTensor): what this rank holds, and where in the whole that lies."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Part(NamedTuple):
    """A box of a tensor."""

    whole: tuple[int, ...]  # Sizes of the whole.
    start: tuple[int, ...]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a distributed tensor that this rank holds; any other tensor itself."""
    held = getattr(tensor, "_local_tensor", None)
    return held if isinstance(held, torch.Tensor) else tensor


def part_of(tensor: torch.Tensor) -> Part | None:
    """None: a tensor that this rank holds whole, or whose part is no box of it."""
    held = local(tensor)
    if held is tensor:
        return None
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    placements = tensor.placements
    if not all(type(placement) in (Shard, Replicate) for placement in placements):
        return None  # A sum that is still to be done, or strided shards.
    shape, start = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, placements)
    if tuple(shape) != tuple(held.shape):
        return None
    return Part(tuple(tensor.shape), tuple(start))
