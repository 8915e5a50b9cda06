"""Products of Householder's reflections."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import PlumblineError
from .register import of

_REFLECTIONS_MAX = 48


# H = 1 - tau v v^T with v = (0, ..., 0, 1, column).


@of("linalg_householder_product.default")
def householder_product(columns: Tensor, tau: Tensor) -> Tensor:
    m, n = columns.shape[-2:]
    start = torch.eye(m, n, dtype=columns.dtype, device=columns.device).expand(*columns.shape[:-2], m, n)
    return _reflected(columns, tau, start, range(tau.shape[-1] - 1, -1, -1))


@of("ormqr.default")
def ormqr(columns: Tensor, tau: Tensor, x: Tensor, left: bool, transpose: bool) -> Tensor:
    order = range(tau.shape[-1])
    if left:
        return _reflected(columns, tau, x, order if transpose else order[::-1])
    return _reflected(columns, tau, x.mT, order[::-1] if transpose else order).mT


def _reflected(columns: Tensor, tau: Tensor, x: Tensor, order: Sequence[int]) -> Tensor:
    if columns.is_complex() or len(order) > _REFLECTIONS_MAX:
        raise PlumblineError("complex or too many reflections")
    for i in order:
        below = columns[..., i + 1 :, i]
        above = torch.zeros_like(columns[..., : i + 1, i])
        above = torch.cat([above[..., :i], above[..., i:] + 1], -1)
        v = torch.cat([above, below], -1).unsqueeze(-1)
        x = x - (tau[..., i, None, None] * v) @ (v.mT @ x)
    return x
