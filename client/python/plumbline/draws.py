"""Operations that draw and compute at once: what they draw is a leaf, the rest is an operation without chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .storages import UNWRITTEN, wrote

if TYPE_CHECKING:
    from .capture import Pending, Recorder
    from .schema import OperatorInfo

SCALED = torch.ops.aten.native_dropout_backward.default  # x * mask * scale


MUL, LEAKY = torch.ops.aten.mul.Tensor, torch.ops.aten.leaky_relu.default


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
    recorder.emit(recorder.plan.info(SCALED), (site, values, unmodelled), [wrote(result)])


def record_rrelu(
    recorder: Recorder,
    info: OperatorInfo,
    pending: Pending,
    out: Any,
    input: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> None:
    """Slopes are drawn where the input is not positive, and are 1 elsewhere."""
    site, (x, *_), unmodelled = pending
    if training:
        recorder._random(noise, info, pending)
        recorder.emit(recorder.plan.info(MUL), (site, [x, recorder.storages.read(noise)], unmodelled), [wrote(out)])
    else:
        recorder.storages.write_leaf(noise, UNWRITTEN, "")  # Nothing but the derivative is given it, and leaves it.
        recorder.emit(recorder.plan.info(LEAKY), (site, [x, (lower + upper) / 2], unmodelled), [wrote(out)])


RECORDED = {"native_dropout": record_dropout, "rrelu_with_noise": record_rrelu}  # By operation.
