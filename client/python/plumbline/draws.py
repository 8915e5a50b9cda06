"""Dropout that draws and computes in one operation: its mask is a leaf, the rest is what its derivative does, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .capture import Pending, Recorder
    from .schema import OperatorInfo

SCALED = torch.ops.aten.native_dropout_backward.default  # x * mask * scale


def dropout_scale(p: float) -> float:
    return 1 / (1 - p) if p < 1 else 0.0


def record_dropout(
    recorder: Recorder,
    info: OperatorInfo,
    pending: Pending,
    out: Any,
    input: torch.Tensor,
    p: float,
    train: bool | None = True,
) -> None:
    site, (x, *_), unmodelled = pending
    result, mask = out
    recorder._random(mask, info, pending)
    values = [x, recorder.storages.read(mask), 1.0 if train is False else dropout_scale(p)]
    recorder._emit(recorder.plan.info(SCALED), (site, values, unmodelled), [(result, "")])
