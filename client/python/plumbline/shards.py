"""Tensors that the ranks of a run hold in parts (DTensor): what this rank holds, and where in the whole that lies."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch


class Part(NamedTuple):
    """A box of a tensor."""

    whole: tuple[int, ...]  # Sizes of the whole.
    start: tuple[int, ...]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a distributed tensor that this rank holds; any other tensor itself."""
    if type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter:
        return tensor
    held = getattr(tensor, "_local_tensor", None)
    return held if isinstance(held, torch.Tensor) else tensor


def part_of(tensor: torch.Tensor) -> Part | None:
    """None: a tensor that this rank holds whole, or whose part is no box of it."""
    held = local(tensor)
    if held is tensor:
        return None
    mesh = tensor.device_mesh
    return _box(tensor.shape, held.shape, mesh, tuple(mesh.get_coordinate() or ()), tuple(tensor.placements))


@functools.lru_cache(maxsize=4096)
def _box(whole: torch.Size, held: torch.Size, mesh: Any, place: tuple[int, ...], placements: Any) -> Part | None:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if not place or not all(_cuts_boxes(whole, mesh, placements, index) for index in range(len(placements))):
        return None
    with torch._C._DisableTorchDispatch():  # It counts with tensors.
        shape, start = compute_local_shape_and_global_offset(whole, mesh, placements)
    return Part(tuple(whole), tuple(start)) if tuple(shape) == tuple(held) else None


def named(name: str, tensor: torch.Tensor) -> str:
    """The name, unless what this rank holds of the tensor cannot be told: that is not what others have under it."""
    return name if local(tensor) is tensor or part_of(tensor) is not None else f"{name}[part]"


def _cuts_boxes(whole: torch.Size, mesh: Any, placements: Any, index: int) -> bool:
    """Whether the placement along a dimension of the mesh leaves boxes. Strided shards do where those of later
    dimensions cut them evenly: FSDP over tensor parallelism cuts what that had cut before."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    placement = placements[index]
    if type(placement) in (Replicate, Shard):
        return True
    if type(placement) is not _StridedShard:
        return False  # A sum that is still to be done.
    pieces = math.prod(
        mesh.size(later)
        for later in range(index + 1, len(placements))
        if type(placements[later]) is Shard and placements[later].dim == placement.dim
    )
    return placement.split_factor == pieces and whole[placement.dim] % (pieces * mesh.size(index)) == 0
