"""What is to run once a collective has ended: `Future.then` and `add_done_callback`, by which PyTorch's hooks that
compress gradients unpack them. That is for another thread, where no dispatch mode is, or for the caller's own if the
collective has ended already. Either way its operations are the step's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, _pop_mode, _push_mode

if TYPE_CHECKING:
    from .capture import Recorder

_METHODS = ("then", "add_done_callback")


class Callbacks:
    """Of one step. While it is captured, two methods of torch's futures are Python's."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._own: dict[str, Any] = {}

    def install(self) -> None:
        for name in _METHODS:
            own = self._own[name] = torch._C.Future.__dict__[name]
            setattr(torch._C.Future, name, self._followed(own))

    def remove(self) -> None:
        for name, own in self._own.items():
            setattr(torch._C.Future, name, own)
        self._own.clear()

    def _followed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(future: Any, callback: Callable[..., Any]) -> Any:
            return method(future, self._watched(callback))

        return call

    def _watched(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            recorder = self._recorder
            # It may come after the step.
            if not self._own or recorder.failure is not None or recorder in _get_current_dispatch_mode_stack():
                return callback(*args)
            _push_mode(recorder)
            try:
                return callback(*args)
            finally:
                _pop_mode()

        return run
