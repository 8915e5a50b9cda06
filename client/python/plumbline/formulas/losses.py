"""Losses: of several classes at once, of sequences that are not aligned, of a linear layer's scores."""

from __future__ import annotations

import contextlib
import importlib
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..definition import WORKSPACE
from ..errors import PlumblineError
from .register import derivative, of, small

_STEPS_MAX = 600
_UNREACHABLE = -1e30  # A logarithm of probability that underflows, and whose rounding is finite.


# These losses take several classes at once.


@of("multilabel_margin_loss_forward.default")
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    is_target = _targets(x.reshape(-1) if x.dim() == 0 else x, target.reshape(-1) if x.dim() == 0 else target)[1]
    return _multilabel(x, target, reduction), is_target.reshape(target.shape)


@of("multilabel_margin_loss_backward.default")
def multilabel_margin_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor | None:
    return derivative(lambda a: _multilabel(a, target, reduction), [x], [True], gradient)[0]


def _targets(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Which of a row's targets count, those before its first -1; which classes they are."""
    counts = (target < 0).cumsum(-1) == 0
    small(*target.shape, target.shape[-1])
    classes = torch.arange(target.shape[-1], device=x.device)
    chosen = (target.unsqueeze(-1) == classes).logical_and(counts.unsqueeze(-1))
    return counts, (chosen.sum(-2) > 0).to(x.dtype)


def _multilabel(x: Tensor, target: Tensor, reduction: int) -> Tensor:
    if x.dim() == 0:
        return _multilabel(x.reshape(1), target.reshape(1), reduction)
    counts, is_target = _targets(x, target)
    right = x.gather(-1, target.clamp(min=0))
    margins = (1 - right.unsqueeze(-1) + x.unsqueeze(-2)).clamp(min=0)
    held = margins * (1 - is_target).unsqueeze(-2) * counts.unsqueeze(-1)
    loss = held.sum((-2, -1)) / x.shape[-1]
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


# This loss makes a linear layer's scores chunk by chunk, and the gradients with them.

with contextlib.suppress(ImportError):  # PyTorch 2.15 and later have it, and register it when it is first called.
    importlib.import_module("torch.nn.modules.linear_cross_entropy")


@of("torch_nn::_linear_cross_entropy_batch_chunked.default")
def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    classes: Tensor | None,
    reduction: str,
    ignored: int,
    smoothing: float,
    chunk: int,
    policy: str,
    accumulated: torch.dtype,
    retain: bool,
    *wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    given = [x, weight] if bias is None else [x, weight, bias]

    def loss(*inputs: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(*inputs), target, classes, None, ignored, None, reduction, smoothing)

    found = loss(*given)
    gradients = derivative(loss, given, wanted[: len(given)], torch.ones_like(found))
    held = [
        x.new_zeros((0,) * dims) if gradient is None else gradient
        for gradient, dims in zip([*gradients, None][:3], (2, 2, 1), strict=True)
    ]
    return found, held[0], held[1], held[2]


@of("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction.default")
def linear_cross_entropies(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    classes: Tensor | None,
    ignored: int,
    chunk: int,
    policy: str,
    accumulated: torch.dtype,
) -> Tensor:
    return F.cross_entropy(F.linear(x, weight, bias), target, classes, ignore_index=ignored, reduction="none")


# Connectionist temporal classification, by the recursion of Graves et al. 2006 over the logarithms of probabilities.


@of("_ctc_loss.default", "_ctc_loss.Tensor", numbers=("input_lengths", "target_lengths"))
def ctc_loss(
    scores: Tensor, targets: Tensor, inputs: list[int], lengths: list[int], blank: int, zero_infinity: bool
) -> tuple[Tensor, Any]:
    lost = _ctc(scores, targets, inputs, lengths, blank)
    return torch.where(lost > -_UNREACHABLE / 2, math.inf, lost), WORKSPACE


@of("_ctc_loss_backward.default", "_ctc_loss_backward.Tensor", numbers=("input_lengths", "target_lengths"))
def ctc_loss_backward(
    gradient: Tensor,
    scores: Tensor,
    targets: Tensor,
    inputs: list[int],
    lengths: list[int],
    lost: Tensor,
    alpha: Tensor,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """PyTorch's derivative is that of the scores before their normalisation (log_softmax adds nothing to it then)."""
    (found,) = derivative(lambda x: _ctc(x, targets, inputs, lengths, blank), [scores], [True], gradient)
    rows = []
    for n, length in enumerate(inputs):
        mine = found[:length, n] + scores[:length, n].exp() * gradient[n]
        rows.append(torch.cat([mine, torch.zeros_like(scores[length:, n])]))
    found = torch.stack(rows, 1)
    infinite = lost.isinf().reshape(1, -1, 1)
    return torch.where(infinite, 0.0 if zero_infinity else math.nan, found)


def _ctc(scores: Tensor, targets: Tensor, inputs: list[int], lengths: list[int], blank: int) -> Tensor:
    """Minus the logarithm of the probability of each target [n] under scores [time, n, classes]."""
    if max(inputs, default=0) > _STEPS_MAX or scores.dtype not in (torch.float32, torch.float64):
        raise PlumblineError("too many steps to be written down")
    longest = max(lengths, default=0)
    rows, begin = [], 0
    for n, length in enumerate(lengths):
        mine = targets[n, :length] if targets.dim() == 2 else targets[begin : begin + length]
        begin += length
        rows.append(
            torch.cat([mine, torch.full((longest - length,), blank, dtype=targets.dtype, device=targets.device)])
        )
    words = torch.stack(rows)
    blanks = torch.full_like(words, blank)
    # A blank before, between and after the words.
    states = torch.cat(
        [torch.stack([blanks, words], 2).flatten(1), torch.full((len(lengths), 1), blank, device=targets.device)], 1
    )
    skips = states[:, 2:] != states[:, :-2]

    def shifted(alpha: Tensor, by: int) -> Tensor:
        return torch.cat([torch.full_like(alpha[:, :by], _UNREACHABLE), alpha[:, :-by]], 1)

    alpha = scores[0].gather(1, states[:, :2])
    if states.shape[1] > 2:
        alpha = torch.cat([alpha, torch.full_like(scores[0, :, :1], _UNREACHABLE).expand(-1, states.shape[1] - 2)], 1)
    else:
        alpha = alpha[:, : states.shape[1]]
    by_time = [alpha]
    for t in range(1, max(inputs, default=0)):
        ways = [alpha]
        if states.shape[1] > 1:
            ways.append(shifted(alpha, 1))
        if states.shape[1] > 2:
            two = torch.where(skips, alpha[:, :-2], _UNREACHABLE)
            ways.append(torch.cat([torch.full_like(alpha[:, :2], _UNREACHABLE), two], 1))
        alpha = _log_sum(ways) + scores[t].gather(1, states)
        by_time.append(alpha)
    lost = []
    for n, (steps, length) in enumerate(zip(inputs, lengths, strict=True)):
        last = by_time[max(steps, 1) - 1][n]
        ends = [last[2 * length]] + ([last[2 * length - 1]] if length else [])
        lost.append(-_log_sum(ends))
    return torch.stack(lost)


def _log_sum(ways: list[Tensor]) -> Tensor:
    largest = ways[0].detach()
    for way in ways[1:]:
        largest = torch.maximum(largest, way.detach())
    total: Any = 0
    for way in ways:
        total = total + (way - largest).exp()
    return total.log() + largest
