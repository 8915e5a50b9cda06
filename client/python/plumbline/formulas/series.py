"""Functions by their series, with as many terms as the numbers at hand need for fp64."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import PlumblineError
from .register import of

_SMALL = 2.0**-56
_TERMS_MAX = 300


# exp(A) = exp(A / 2^s)^(2^s), the norm of A / 2^s being at most 1, where this many terms leave less than fp64 shows
# (Higham, "The scaling and squaring method for the matrix exponential revisited", 2005).
_EXPONENTIAL_TERMS = 18
_SQUARINGS_MAX = 24


def _squarings(matrix: Tensor) -> dict[str, Any]:
    norm = float(matrix.abs().double().sum(-2).max()) if matrix.numel() else 0.0
    if not math.isfinite(norm) or norm > 2.0**_SQUARINGS_MAX:
        raise PlumblineError("a matrix as large as that")
    return {"squarings": max(0, math.ceil(math.log2(norm))) if norm > 0 else 0}


@of("linalg_matrix_exp.default", measured=_squarings)
def matrix_exp(matrix: Tensor, *, squarings: int) -> Tensor:
    if matrix.is_complex() or matrix.dtype not in (torch.float32, torch.float64):
        raise PlumblineError("complex numbers, or sums in half precision")
    one = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    scaled = matrix * 2.0**-squarings
    found = one + scaled / _EXPONENTIAL_TERMS
    for k in range(_EXPONENTIAL_TERMS - 1, 0, -1):
        found = one + (scaled @ found) / k
    for _ in range(squarings):
        found = found @ found
    return found.clone()


# P(a, x) = x^a exp(-x) / gamma(a + 1) sum of x^n / ((a + 1) ... (a + n)) (Abramowitz and Stegun 6.5.29).


def _gamma_terms(a: Tensor, x: Tensor) -> dict[str, Any]:
    """How many terms leave less than fp64 shows, at the largest x and the smallest a."""
    finite = [float(v) for v in x.double().flatten() if math.isfinite(v) and v > 0] if x.numel() <= 4096 else [math.inf]
    below = [float(v) for v in a.double().flatten() if v > 0] if a.numel() <= 4096 else [0.0]
    largest, least = max(finite, default=0.0), min(below, default=0.0)
    term = total = 1.0
    for n in range(1, _TERMS_MAX):
        term *= largest / (least + n)
        total += term
        if term < _SMALL * total and largest < (least + n) / 2:
            return {"terms": n}
    raise PlumblineError("so many terms")


@of("igamma.default", measured=_gamma_terms)
def igamma(a: Tensor, x: Tensor, *, terms: int) -> Tensor:
    return _incomplete_gamma(a, x, terms, upper=False)


@of("igammac.default", measured=_gamma_terms)
def igammac(a: Tensor, x: Tensor, *, terms: int) -> Tensor:
    return _incomplete_gamma(a, x, terms, upper=True)


def _incomplete_gamma(a: Tensor, x: Tensor, terms: int, upper: bool) -> Tensor:
    own = x.dtype
    if own in (torch.float16, torch.bfloat16):
        a, x = a.float(), x.float()
    a, x = torch.broadcast_tensors(a, x)
    inside = (a > 0).logical_and(x > 0).logical_and(a < math.inf).logical_and(x < math.inf)
    b, z = torch.where(inside, a, 1.0), torch.where(inside, x, 1.0)
    found = torch.ones_like(z)
    for n in range(terms, 0, -1):
        found = 1 + found * (z / (b + n))
    lower = (b * z.log() - z - torch.lgamma(b + 1)).exp() * found
    # At the ends: P is 0 at x = 0 and at a = inf, 1 at a = 0 and at x = inf.
    ends = torch.where((x == 0).logical_or(a == math.inf), 0.0, 1.0)
    lower = torch.where(inside, lower, ends.to(lower.dtype))
    both = ((x == 0).logical_and(a == 0)).logical_or((x == math.inf).logical_and(a == math.inf))
    undefined = both.logical_or(x < 0).logical_or(a < 0).logical_or(x != x).logical_or(a != a)
    return torch.where(undefined, math.nan, 1 - lower if upper else lower).to(own)
