"""Storages that are made of named leaves: of a layout that another program has, of parameters that classic FSDP lays
into one, and of whatever lies there otherwise than a tensor alone, row by row.

What has a name is matched by it, element by element: a leaf must hold its elements in the tensor's own order, not in
that of memory, which channels_last, a transposed weight or a flat buffer may have otherwise than the other program."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from .plan import CaptureFailed
from .schema import UNSET
from .shards import gaps
from .sites import FORWARD
from .storages import DATA, Window, extent, modelled, wrote

if TYPE_CHECKING:
    from .capture import Recorder


def assemble(
    recorder: Recorder,
    tensor: torch.Tensor,
    role: int,
    parts: list[tuple[str, torch.Tensor]],
    padding: list[torch.Tensor] | None = None,
) -> list[Window]:
    """Makes a storage that has no value yet out of named leaves, which together with the padding cover it. Returns
    windows on the leaves."""
    storages = recorder.storages
    if storages.adopt(tensor).value:
        return []
    if tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes():
        raise CaptureFailed("mapping", f"{parts[0][0]!r} comes from a tensor that shares its storage with others")
    site = (FORWARD, "", "")
    whole = _whole(tensor)
    zeros = recorder.plan.info(torch.ops.aten.zeros.default)
    values = [[whole.numel()], whole.dtype, *[UNSET] * (len(zeros.arguments) - 2)]
    recorder.emit(zeros, (site, values, ""), [wrote(whole)])
    leaves = [recorder.copy_leaf(part, storages.read(part), role, name, site) for name, part in parts]
    for part in padding or ():
        recorder.copy_leaf(part, storages.read(part), DATA, "", site)
    return leaves


def assemble_laid(recorder: Recorder, role: int, tensors: list[tuple[str, torch.Tensor]]) -> dict[str, Window]:
    """Does so with the storages of those tensors that do not have one to themselves, or lie there otherwise than row by
    row. Left out are storages in which they overlap or have holes, where nobody can tell what is whose; tied tensors
    keep their first name. Returns windows on the leaves, by name."""
    by_storage: dict[int, dict[tuple[int, int], tuple[str, torch.Tensor]]] = {}
    for name, tensor in tensors:
        if tensor.numel() and modelled(tensor):
            by_storage.setdefault(tensor.untyped_storage()._cdata, {}).setdefault(extent(tensor), (name, tensor))
    found: dict[str, Window] = {}
    for ranges in by_storage.values():
        parts = [ranges[key] for key in sorted(ranges)]
        first = parts[0][1]
        if len(parts) == 1 and first.is_contiguous() and _bytes(first) == first.untyped_storage().nbytes():
            continue
        dense = all(high - low == _bytes(tensor) for (low, high), (_, tensor) in ranges.items())
        apart = all(before[1] <= after[0] for before, after in itertools.pairwise(sorted(ranges)))
        if not dense or not apart or len({tensor.dtype for _, tensor in parts}) > 1:
            continue
        whole = _whole(first)
        leaves = assemble(recorder, whole, role, parts, gaps(whole, [tensor for _, tensor in parts]))
        found.update(zip((name for name, _ in parts), leaves, strict=False))
        if leaves:
            entry = recorder.storages.adopt(whole)
            entry.role, entry.name, entry.origin = role, parts[0][0], (entry.value, entry.dtype)
    return found


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C._DisableTorchDispatch():
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
