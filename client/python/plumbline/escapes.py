"""Tensors that Python reads whole: `tolist()`, `numpy()`, and what numpy itself makes of a tensor. No dispatch mode
sees it. Their elements are read one by one then, as `item()` reads them, so that the daemon knows: numbers that Python
computes afterwards may come from them. What numpy holds it may also write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

if TYPE_CHECKING:
    from .capture import Recorder

# So many elements of a tensor stand for all: how far a number computed from them may be off hangs on how far they are.
ELEMENTS_MAX = 64
_METHODS = ("tolist", "numpy")  # Tensor.__array__ asks for the latter.


class Escapes:
    """Of one step. While it is captured, two methods of torch.Tensor are Python's."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._own: dict[str, Any] = {}  # What torch.Tensor had itself under the method's name; None: it inherits.

    def install(self) -> None:
        for name in _METHODS:
            self._own[name] = torch.Tensor.__dict__.get(name)
            setattr(torch.Tensor, name, self._followed(getattr(torch.Tensor, name), name))

    def remove(self) -> None:
        for name, own in self._own.items():
            if own is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, own)
        self._own.clear()

    def _followed(self, method: Callable[..., Any], reader: str) -> Callable[..., Any]:
        recorder = self.recorder

        @functools.wraps(method)
        def read_and_told(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            out = method(tensor, *args, **kwargs)
            if _get_current_dispatch_mode() is recorder and recorder.failure is None and not recorder.silence.depth:
                try:
                    recorder.reader = reader
                    read(recorder, tensor)
                    if reader == "numpy" and tensor.device.type == "cpu":  # Of other devices it holds a copy.
                        recorder.storages.lend(tensor)
                except Exception as error:
                    recorder.guard(error)
                finally:
                    recorder.reader = ""
            return out

        return read_and_told


def read(recorder: Recorder, tensor: torch.Tensor) -> None:
    """Reads elements of a tensor, all or some that lie evenly apart; of integers where the step computed them: a choice
    that rounding turns makes them others."""
    if tensor.layout != torch.strided or tensor.is_complex():
        return
    if not tensor.is_floating_point():
        entry = recorder.storages.entry(tensor)
        if entry is None or not entry.value or entry.leaf:
            return
    with torch.no_grad():
        for place in places(tensor.shape):
            tensor[place].item()


def places(shape: torch.Size) -> Iterator[tuple[int, ...]]:
    count = shape.numel()
    for k in range(min(count, ELEMENTS_MAX)):
        at, place = k * count // min(count, ELEMENTS_MAX), []
        for size in reversed(shape):
            at, index = divmod(at, size)
            place.append(index)
        yield tuple(reversed(place))
