"""What a partial step leaves out where everything runs, outside of modules: operations on parameters that it does not
audit, on their gradients and on their optimizer state ("foreign"), and on what was computed from such alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .plan import CaptureFailed
from .schema import OTHER, TENSORS, OperatorInfo
from .storages import StorageTable, has_view

if TYPE_CHECKING:
    from .capture import Pending, Recorder

# Operations on lists that treat each position by itself.
_BY_POSITION = ("_foreach_", "_fused_", "_amp_foreach_")


def operation(recorder: Recorder, func: Any, info: OperatorInfo, args: Any, kwargs: Any) -> Any:
    """Runs an operation of a partial step, which may audit all of it, some positions of its lists, or nothing."""
    pending: Pending | None = None
    try:
        with recorder.lock:
            kept, shown = _shown(recorder.storages, info, args, kwargs)
            if kept:
                recorder.site = site = recorder.sites.current()
                recorder.storages.unmodelled = ""
                pending = (site, recorder._before(info, *shown), recorder.storages.unmodelled)
    except Exception as error:
        recorder.guard(error)
        return func(*args, **kwargs)
    if kept is None:
        return recorder.operation(func, info, args, kwargs)
    out = func(*args, **kwargs)
    if recorder.failure is None:
        try:
            with recorder.lock:
                if kept and info.last_result_decision and args[1].item():
                    raise CaptureFailed("scaler_overflow", "perhaps of a gradient outside of the scope")
                after(recorder.storages, info, out, kept)
                if pending is not None:
                    part = restricted(out, list_length(info, args, kwargs), kept)
                    recorder._after(info, pending, *shown, part)
        except Exception as error:
            recorder.guard(error)
    return out


def _shown(
    storages: StorageTable, info: OperatorInfo, args: Any, kwargs: Any
) -> tuple[list[int] | None, tuple[Any, Any]]:
    """The positions of the call's lists that are recorded, or None for all of it, and what the call looks like with
    them alone."""
    if torch._C._current_autograd_node() is not None:
        return None, (args, kwargs)
    kept = kept_positions(storages, info, args, kwargs)
    if kept is None:
        return None, (args, kwargs)
    before(storages, info, args, kwargs, kept)
    count = list_length(info, args, kwargs)
    shown_args = [restricted(value, count, kept) for value in args]
    return kept, (shown_args, {key: restricted(value, count, kept) for key, value in kwargs.items()})


def kept_positions(storages: StorageTable, info: OperatorInfo, args: Any, kwargs: Any) -> list[int] | None:
    """None: the operation is audited whole. Otherwise the positions of its lists that are; none: nothing of it."""
    lists: list[Any] = []
    single = audited = False
    for value, kind in _arguments(info, args, kwargs):
        if kind == TENSORS and value is not None:
            lists.append(value)
        elif isinstance(value, torch.Tensor):
            single = True
            audited = audited or not _foreign(storages, value)
    if not lists:
        return [] if single and not audited else None
    if not info.base.startswith(_BY_POSITION):
        every = all(_foreign(storages, item) for items in lists for item in items if item is not None)
        return [] if every and not audited and any(lists) else None
    count = len(lists[0])
    aligned = [items for items in lists if len(items) == count]
    kept = [i for i in range(count) if not all(items[i] is None or _foreign(storages, items[i]) for items in aligned)]
    return None if len(kept) == count else kept


def restricted(value: Any, count: int, kept: list[int]) -> Any:
    """A list with a tensor or a number for each of `count` positions, as far as it is audited; anything else as it
    is."""
    if isinstance(value, (list, tuple)) and len(value) == count:
        return [value[i] for i in kept]
    return value


def list_length(info: OperatorInfo, args: Any, kwargs: Any) -> int:
    return next((len(value) for value, kind in _arguments(info, args, kwargs) if kind == TENSORS), 0)


def before(storages: StorageTable, info: OperatorInfo, args: Any, kwargs: Any, kept: list[int]) -> None:
    """What is about to be written unrecorded."""
    for index in info.writes:
        name = info.arguments[index].name
        value = args[index] if index < len(args) else kwargs.get(name)
        items = value if isinstance(value, (list, tuple)) else [value]
        for position, tensor in enumerate(items):
            if isinstance(tensor, torch.Tensor) and position not in kept and has_view(tensor):
                storages.unseen(tensor)


def after(storages: StorageTable, info: OperatorInfo, out: Any, kept: list[int]) -> None:
    """What was returned unrecorded is foreign too. Single numbers (norms) are not: what they decide is everyone's, and
    observes them."""
    if not info.fresh:
        return
    for position, tensor in enumerate(out if isinstance(out, (list, tuple)) else [out]):
        if isinstance(tensor, torch.Tensor) and position not in kept and has_view(tensor) and tensor.numel() > 1:
            storages.adopt(tensor).foreign = True


def _foreign(storages: StorageTable, tensor: torch.Tensor) -> bool:
    entry = storages.entry(tensor) if has_view(tensor) else None
    return entry is not None and entry.foreign


def _arguments(info: OperatorInfo, args: Any, kwargs: Any) -> Iterator[tuple[Any, int]]:
    for index, argument in enumerate(info.arguments):
        if argument.kind != OTHER:
            if index < len(args):
                yield args[index], argument.kind
            elif argument.name in kwargs:
                yield kwargs[argument.name], argument.kind
