"""Products of small integers, and the softmax under a mask (ATen: native/transformers)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import PlumblineError
from .register import of

_OF_QUERIES, _OF_KEYS, _OF_SCORES = range(3)  # What a mask is a mask of.


@of("_int_mm.default")
def int_mm(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a.to(torch.int32), b.to(torch.int32))


@of("_masked_softmax.default")
def masked_softmax(x: Tensor, mask: Tensor, dim: int | None, mask_type: int | None) -> Tensor:
    if mask_type == _OF_QUERIES:
        mask = mask.reshape(1, 1, *mask.shape[-2:])
    elif mask_type == _OF_KEYS:
        mask = mask.reshape(mask.shape[0], 1, 1, mask.shape[-1])
    elif mask_type != _OF_SCORES:
        raise PlumblineError("a mask of another kind")
    if x.device.type == "cpu" and x.dtype in (torch.float16, torch.bfloat16):
        raise PlumblineError("a kernel that adds in 16-bit elements' own format")
    masked = x.masked_fill(mask.expand(x.shape), -math.inf)
    return masked.softmax(x.dim() - 1 if dim is None else dim)  # NaN where all of a row is masked, as kernels have it.


@of("_masked_softmax_backward.default")
def masked_softmax_backward(gradient: Tensor, output: Tensor, mask: Tensor, dim: int | None) -> Tensor:
    dim = output.dim() - 1 if dim is None else dim
    g = gradient.to(torch.float32) if gradient.dtype in (torch.float16, torch.bfloat16) else gradient
    out = output.to(g.dtype)
    of_scores = out * (g - (g * out).sum(dim, keepdim=True))
    return of_scores.masked_fill(mask.expand(out.shape), 0).to(gradient.dtype)
