"""Tensors that the ranks of a run hold in parts: what this rank holds, and where in the whole that lies. A DTensor
tells it by itself; parameters of classic FullyShardedDataParallel (use_orig_params=True) are ranges of the flattened
whole."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary


class Part(NamedTuple):
    """A box of a tensor, or a range of the flattened tensor."""

    whole: tuple[int, ...]  # Sizes of the whole.
    start: tuple[int, ...]  # One for each size; of a range, one alone.


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a distributed tensor that this rank holds; any other tensor itself."""
    if type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter:
        return tensor
    held = getattr(tensor, "_local_tensor", None)
    return held if isinstance(held, torch.Tensor) else tensor


def part_of(tensor: torch.Tensor, parameter: torch.Tensor | None = None) -> Part | None:
    """None: a tensor that this rank holds whole, or whose part is no box of it. `parameter`: whose gradient or state it
    is."""
    held = local(tensor)
    if held is tensor:
        owner = tensor if parameter is None else parameter
        return _flat.get(owner) if _flat and tensor.shape == owner.shape else None
    mesh = tensor.device_mesh
    return _box(tensor.shape, held.shape, mesh, tuple(mesh.get_coordinate() or ()), tuple(tensor.placements))


# The parameters that classic FSDP was seen to hold in parts.
_flat: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def flat_shards(model: torch.nn.Module) -> list[tuple[torch.Tensor, list[torch.Tensor]]]:
    """The flat parameters that classic FSDP makes of a model's, as far as they are sharded: what this rank holds of
    each, and of the parameters that lie in it. From then on part_of() knows these."""
    found = []
    for module in model.modules():
        flat = getattr(getattr(module, "_handle", None), "flat_param", None)
        parameters, places = getattr(flat, "_params", None), getattr(flat, "_shard_param_infos", None)
        if parameters is None or places is None or not module._handle.uses_sharded_strategy:
            continue
        held = []
        for parameter, shape, place in zip(parameters, flat._shapes, places, strict=True):
            if parameter.shape != ((place.numel_in_shard if place.in_shard else 0),):
                continue  # Put together for use.
            _flat[parameter] = Part(tuple(shape), (place.intra_param_start_idx if place.in_shard else 0,))
            if place.in_shard:
                held.append(parameter)
        if held:
            found.append((flat, held))
    return found


def gaps(flat: torch.Tensor, parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """What lies of a flat tensor beside these parts of it: padding, which makes the ranks' shares equal."""
    places = sorted((part.storage_offset() - flat.storage_offset(), part.numel()) for part in parts)
    begin, found = 0, []
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        for start, count in [*places, (flat.numel(), 0)]:
            if start > begin:
                found.append(flat[begin:start])
            begin = start + count
    return found


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
