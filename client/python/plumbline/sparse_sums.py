"""Sums of two sparse tensors in coordinates. PyTorch merges their entries in the order in which they lie and adds pairs
that meet (add_out_sparse_contiguous in ATen/native/sparse/SparseTensorMath.cpp), or lays one's entries behind the
other's. Which entries meet hangs on the indices alone: a call is written down as additions and copies of runs of
entries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .storages import Window, modelled, stand_ins, wrote

if TYPE_CHECKING:
    from .capture import Pending, Recorder
    from .schema import OperatorInfo

_NAMES = ("aten::add.Tensor", "aten::add_.Tensor")
_ENTRIES_MAX = 1 << 16
_RUNS_MAX = 1 << 12
_LEFT, _RIGHT, _BOTH = 1, 2, 3


class _Run(NamedTuple):
    """Entries of the result that come of `count` entries from `left` on, of `count` from `right` on, or of both."""

    kind: int
    left: int
    right: int
    count: int


class SparseSum:
    """One call, before it runs."""

    def __init__(self, recorder: Recorder, info: OperatorInfo, pending: Pending, args: Any, kwargs: Any) -> None:
        self._recorder = recorder
        self._call = (info, pending, args, kwargs)
        self._indices = [_entries(tensor) for tensor in args[:2]]
        alpha = args[2] if len(args) > 2 else kwargs.get("alpha", 1)
        self._factor = pending[1][2] if alpha != 1 else None

    def ends(self, out: torch.Tensor) -> None:
        recorder = self._recorder
        info, pending, args, kwargs = self._call
        runs = self._runs(_entries(out))
        if runs is None:
            return recorder._after(info, pending, args, kwargs, out)
        indices, values = stand_ins(out)
        site, ((left_indices, left), (right_indices, right), *_), _ = pending
        if self._factor is not None:
            right = self._computed(torch.ops.aten.mul.Tensor, [right, self._factor], None, right)
        parts, places, start = [], [], 0
        for run in runs:
            mine, theirs = _part(left, 0, run.left, run.count), _part(right, 0, run.right, run.count)
            if run.kind == _BOTH:
                content = values[start : start + run.count]
                mine = self._computed(torch.ops.aten.add.Tensor, [mine, theirs, 1], content, mine)
            parts.append(theirs if run.kind == _RIGHT else mine)
            of = (right_indices, run.right) if run.kind == _RIGHT else (left_indices, run.left)
            places.append(_part(of[0], 1, of[1], run.count))
            start += run.count
        join = recorder.plan.info(torch.ops.aten.cat.default)
        recorder.emit(join, (site, [places, 1], ""), [wrote(indices)])
        recorder.emit(join, (site, [parts, 0], ""), [wrote(values)])

    def _runs(self, found: list[tuple[int, ...]] | None) -> list[_Run] | None:
        """What the result is made of; None: this is not known."""
        left, right = self._indices
        if not left or not right or not found:
            return None
        for runs in (_merged(left, right), [_Run(_LEFT, 0, 0, len(left)), _Run(_RIGHT, 0, 0, len(right))]):
            made = [
                (right if run.kind == _RIGHT else left)[(run.right if run.kind == _RIGHT else run.left) + i]
                for run in runs
                for i in range(run.count)
            ]
            if made == found and len(runs) <= _RUNS_MAX:
                return runs
        return None

    def _computed(self, func: Any, values: list[Any], content: torch.Tensor | None, like: Window) -> Window:
        """The window on what an operation that nobody saw gives, of the sizes of a window."""
        recorder = self._recorder
        sizes = like[2]
        window = (recorder.storages.fresh_value(), like[1], sizes, _dense(sizes), 0)
        observed = recorder.outputs and content is not None
        payload = recorder.storages.payload(recorder.arena.copy_tensor(content)) if observed else 0
        phase, module, source = self._call[1][0]
        result = (window, math.prod(sizes), 0, "", payload)
        recorder.append_op(("op", recorder.plan.info(func), values, [result], phase, source, module, 0))
        return window


def sum_of(recorder: Recorder, info: OperatorInfo, pending: Pending, args: Any, kwargs: Any) -> SparseSum | None:
    """A call that is about to run; None: it is no sum of two sparse tensors in coordinates."""
    if info.name not in _NAMES or pending[2] != "sparse_coo" or len(args) < 2:
        return None
    if not all(isinstance(tensor, torch.Tensor) and tensor.layout is torch.sparse_coo for tensor in args[:2]):
        return None
    if args[0].dtype != args[1].dtype or not all(map(modelled, (*stand_ins(args[0]), *stand_ins(args[1])))):
        return None
    return SparseSum(recorder, info, pending, args, kwargs)


def _entries(tensor: torch.Tensor) -> list[tuple[int, ...]] | None:
    """The indices of each entry; None: too many, or on a device."""
    if tensor.device.type != "cpu" or tensor._nnz() > _ENTRIES_MAX:
        return None
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        return list(zip(*tensor._indices().tolist(), strict=True))


def _merged(left: list[tuple[int, ...]], right: list[tuple[int, ...]]) -> list[_Run]:
    runs: list[_Run] = []
    i = j = 0
    while i < len(left) or j < len(right):
        if i == len(left):
            kind = _RIGHT
        elif j == len(right):
            kind = _LEFT
        else:
            kind = _BOTH if left[i] == right[j] else _LEFT if left[i] < right[j] else _RIGHT
        if runs and runs[-1].kind == kind:
            runs[-1] = runs[-1]._replace(count=runs[-1].count + 1)
        else:
            runs.append(_Run(kind, i, j, 1))
        i += kind != _RIGHT
        j += kind != _LEFT
    return runs


def _part(window: Window, dim: int, start: int, count: int) -> Window:
    """Entries of a window along a dimension."""
    value, code, sizes, strides, offset = window
    sizes = (*sizes[:dim], count, *sizes[dim + 1 :])
    return value, code, sizes, strides, offset + start * strides[dim]


def _dense(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
