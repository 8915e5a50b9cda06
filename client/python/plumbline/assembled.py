"""Storages that are made of named leaves: of a layout that another program has, or of parameters that classic FSDP lays
into one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .plan import CaptureFailed
from .schema import UNSET
from .sites import FORWARD
from .storages import DATA, Window, wrote

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
    with torch._C._DisableTorchDispatch():
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
    zeros = recorder.plan.info(torch.ops.aten.zeros.default)
    values = [[whole.numel()], whole.dtype, *[UNSET] * (len(zeros.arguments) - 2)]
    recorder.emit(zeros, (site, values, ""), [wrote(whole)])
    leaves = [recorder.copy_leaf(part, storages.read(part), role, name, site) for name, part in parts]
    for part in padding or ():
        recorder.copy_leaf(part, storages.read(part), DATA, "", site)
    return leaves
