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

Named = tuple[int, str, torch.Tensor]  # A role, a name, and what lies in the storage.


def assemble(
    recorder: Recorder,
    tensor: torch.Tensor,
    parts: list[Named],
    padding: list[torch.Tensor] | None = None,
) -> list[Window]:
    """Makes a storage that has no value yet out of named leaves, which together with the padding cover it. Returns
    windows on the leaves."""
    storages = recorder.storages
    if storages.adopt(tensor).value:
        return []
    if tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes():
        raise CaptureFailed("mapping", f"{parts[0][1]!r} comes from a tensor that shares its storage with others")
    site = (FORWARD, "", "")
    whole = _whole(tensor)
    zeros = recorder.plan.info(torch.ops.aten.zeros.default)
    values = [[whole.numel()], whole.dtype, *[UNSET] * (len(zeros.arguments) - 2)]
    recorder.emit(zeros, (site, values, ""), [wrote(whole)], observe=False)
    leaves = [recorder.copy_leaf(part, storages.read(part), role, name, site) for role, name, part in parts]
    for part in padding or ():
        recorder.copy_leaf(part, storages.read(part), DATA, "", site)
    return leaves


def assemble_laid(recorder: Recorder, tensors: list[Named]) -> dict[str, Window]:
    """Does so with the storages of those tensors that do not have one to themselves, or lie there otherwise than row by
    row. Left out are storages in which they overlap or have holes, where nobody can tell what is whose; tied tensors
    keep their first name. Returns windows on the leaves, by all names."""
    by_storage: dict[int, dict[tuple[int, int], Named]] = {}
    tied: list[tuple[Named, Named]] = []
    for role, name, tensor in tensors:
        if tensor.numel() and modelled(tensor):
            of_storage = by_storage.setdefault(tensor.untyped_storage()._cdata, {})
            first = of_storage.setdefault(extent(tensor), (role, name, tensor))
            if first[1] != name:
                tied.append((first, (role, name, tensor)))
    found: dict[str, Window] = {}
    for ranges in by_storage.values():
        parts = [ranges[key] for key in sorted(ranges)]
        role, name, tensor = parts[0]
        if len(parts) == 1 and tensor.is_contiguous() and _bytes(tensor) == tensor.untyped_storage().nbytes():
            continue
        dense = all(high - low == _bytes(part) for (low, high), (_, _, part) in ranges.items())
        apart = all(before[1] <= after[0] for before, after in itertools.pairwise(sorted(ranges)))
        if not dense or not apart or len({part.dtype for _, _, part in parts}) > 1:
            continue
        whole = _whole(tensor)
        leaves = assemble(recorder, whole, parts, gaps(whole, [part for _, _, part in parts]))
        found.update(zip((name for _, name, _ in parts), leaves, strict=False))
        if leaves:
            entry = recorder.storages.adopt(whole)
            entry.role, entry.name, entry.origin, entry.laid = role, name, (entry.value, entry.dtype), True
    for (_, name, first), (_, other, tensor) in tied:
        window = _window_as(tensor, first, found[name]) if name in found else None
        if window is not None:
            found[other] = window
    return found


def _window_as(tensor: torch.Tensor, first: torch.Tensor, leaf: Window) -> Window | None:
    """What a tensor sees of the leaf of another one that lies where it does; None: it cuts it otherwise."""
    along = {
        stride: (size, row) for size, stride, row in zip(first.shape, first.stride(), leaf[3], strict=True) if size > 1
    }
    strides = []
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        known, row = along.get(stride, (0, 0)) if size > 1 else (size, 1)
        if known != size:
            return None
        strides.append(row)
    return leaf[0], leaf[1], tuple(tensor.shape), tuple(strides), leaf[4]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C._DisableTorchDispatch():
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
