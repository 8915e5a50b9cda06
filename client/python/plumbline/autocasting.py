"""Operations that call others in their kernels. Where autocast is on it applies to these, too; but not while a dispatch
mode runs, inside of which autocast is off. To change no bit, such an operation runs as if it was called by the program.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

_KEYS = {"cpu": torch._C.DispatchKey.AutocastCPU, "cuda": torch._C.DispatchKey.AutocastCUDA}


# Found by a sweep of all operations under autocast, with and without a dispatch mode.
CASTING_OPS = frozenset({"aten::affine_grid_generator", "aten::_trilinear", "aten::linalg_pinv", "aten::linalg_polar"})


class AutocastState:
    """Whether autocast is on, by thread and device, between `enter` and `leave`; a dispatch mode is not told."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._original: Any = None

    def enter(self) -> None:
        """Before the mode is entered, in its thread."""
        self._local.on = {device for device in _KEYS if torch.is_autocast_enabled(device)}
        self._original = original = torch.set_autocast_enabled

        def set_autocast_enabled(*args: Any) -> Any:
            device, enabled = args if len(args) == 2 else ("cuda", args[0])
            on = self._on()
            (on.add if enabled else on.discard)(device)
            return original(*args)

        torch.set_autocast_enabled = set_autocast_enabled

    def leave(self) -> None:
        if self._original is not None:
            torch.set_autocast_enabled, self._original = self._original, None

    def _on(self) -> set[str]:
        on = getattr(self._local, "on", None)
        if on is None:
            on = self._local.on = set()
        return on

    @contextlib.contextmanager
    def as_called(self) -> Iterator[None]:
        """Autocast is on or off as it is for the program, within a dispatch mode."""
        excluded = torch._C._dispatch_tls_local_exclude_set()
        for device in self._on():
            if device in _KEYS:
                excluded = excluded.remove(_KEYS[device])
        with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
            yield
