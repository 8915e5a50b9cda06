"""What is recorded of an operation on tensors that cannot be described: views on their memory that can be, and an
operation of its own, named after the tensors' kind. Complex tensors are views as real numbers, and many operations on
them are modelled. Operations on other kinds are opaque."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from .schema import ArgumentInfo, OperatorInfo
from .storages import Window, Written, is_negated, kind_of, layout_of, modelled, stand_ins, weightier

if TYPE_CHECKING:
    from .capture import Recorder


def read_stand_ins(
    recorder: Recorder, tensor: torch.Tensor, info: OperatorInfo, argument: ArgumentInfo
) -> Window | list[Window]:
    """Windows of what stands for a tensor that an operation is going to read, or to write; of one that is only negated,
    the window on what it shows."""
    parts = stand_ins(tensor)
    if is_negated(tensor) and not argument.write:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            shown = tensor.resolve_neg()
        return _resolved(
            recorder, shown, recorder.plan.info(torch.ops.aten.neg.default), recorder.storages.read(parts[0])
        )
    if argument.write:
        if is_negated(tensor):
            recorder.storages.unmodelled = weightier(recorder.storages.unmodelled, kind_of(tensor))
        if tensor.is_conj():
            recorder.storages.unmodelled += "*"  # The memory will hold the conjugate of what is written.
        return [recorder._read(part, info, argument) for part in parts]
    windows = [recorder.storages.read(part) for part in parts]
    return [_conjugate(recorder, tensor, windows)] if tensor.is_conj() and len(windows) == 1 else windows


def _conjugate(recorder: Recorder, tensor: torch.Tensor, windows: list[Window]) -> Window:
    """PyTorch puts conjugates off: the tensor only says of itself that its memory holds the conjugate. An operation of
    our own resolves it. Returns the window on its result, `windows` being on what the memory holds."""
    info = recorder.plan.of_kind(recorder.plan.info(torch.ops.aten._conj_physical.default), kind_of(tensor))
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        shown = torch.view_as_real(torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor))
    return _resolved(recorder, shown, info, windows)


def _resolved(recorder: Recorder, shown: torch.Tensor, info: OperatorInfo, held: Window | list[Window]) -> Window:
    """The window on what an operation of our own makes of what the memory holds: `shown`, which is new."""
    count, payload = shown.numel(), 0
    if count and (recorder.outputs or not info.lowered or info.wanted):
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            payload = recorder.storages.payload(recorder.arena.copy_tensor(shown.contiguous()))
    with torch._C._DisableTorchDispatch():
        strides = torch.empty(shown.shape, device="meta").stride()
    window = (recorder.storages.fresh_value(), modelled(shown), tuple(shown.shape), tuple(strides), 0)
    phase, module, source = recorder.site
    recorder.append_op(("op", info, [held], [(window, count, 0, "", payload)], phase, source, module, 0))
    return window


def as_own(
    recorder: Recorder, info: OperatorInfo, kind: str, written: list[Written]
) -> tuple[OperatorInfo, list[Written]]:
    """The operation of its own, and what stands for the tensors that it wrote."""
    plain: list[Written] = []
    for tensor, name, layout in written:
        if tensor is None or layout[1]:
            plain.append((tensor, name, layout))
        else:
            kind = weightier(kind, kind_of(tensor))
            plain.extend((part, name, layout_of(part)) for part in stand_ins(tensor))
    return recorder.plan.of_kind(info, kind), plain


@functools.cache
def is_wrapper(kind: type) -> bool:
    """Whether a subclass of Tensor handles operations itself."""
    own = getattr(kind, "__torch_dispatch__", None)
    return own is not None and own is not torch.Tensor.__torch_dispatch__ and own is not _PLAIN_DISPATCH


_PLAIN_DISPATCH = torch._C._disabled_torch_dispatch_impl
