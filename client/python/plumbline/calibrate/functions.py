"""Errors of elementary functions: fp32 and fp64 on samples, fp16 and bf16 on every argument.

An error is stated as the ULPs that a profile would have to claim: the smallest N for which
|error| <= (2N + 1) u (|t| + smallest normal) + absolute + slope, with what the profile claims as absolute and slope.
Profiles state it of fp32 and fp64. Results in fp16 and bf16 are computed in fp32 and rounded once, they say; a kernel
that rounds in between, too, is told apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .formats import BF16, FP16, FP32, FP64, Format, every_half, exact, finite_bits

Arguments = tuple[torch.Tensor, ...]
NONE = "no argument"
FAITHFUL = 0.5  # ULPs up to which a profile says of quotients and roots that they are exact where they can be.


@dataclass(frozen=True)
class Elementary:
    compute: Callable[..., torch.Tensor]
    reference: Callable[..., np.ndarray] | None  # None: of fp32 and below, PyTorch's in fp64.
    ranges: tuple[tuple[float, float], ...]  # Beside the whole range of exponents.
    bounded: bool = False  # Whether mathematics keeps results in a range.
    numbers: tuple[float, ...] = ()  # As second argument, where they have kernels of their own.
    formats: tuple[Format, ...] = (FP32, FP64, FP16, BF16)
    arguments: Callable[[], torch.Tensor] | None = None  # All there is to measure; None: samples.
    on_cpu_alone: bool = False
    # Arguments whose results a format holds, and these.
    known: Callable[[Format, torch.Generator], tuple[torch.Tensor, torch.Tensor]] | None = None


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


KEYS = 64


def _bf16_scores() -> torch.Tensor:
    """Every bf16 number in [-3, -2^-9]."""
    x = every_half(BF16).float()
    return x[(x >= -3) & (x <= -(2.0**-9))]


def _fused_exp(x: torch.Tensor) -> torch.Tensor:
    """The exponential inside of fused attention, read off the logarithm of rows' sums: one key has the score 0, the
    others x."""
    scores = torch.zeros(len(x) + 1, 1, KEYS, 8, dtype=torch.bfloat16)
    scores[:-1, 0, 1:, 0] = x.bfloat16().unsqueeze(1)
    queries = torch.zeros(len(x) + 1, 1, 1, 8, dtype=torch.bfloat16)
    queries[..., 0] = 1
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    sums = attention(queries, scores, scores, scale=1.0)[1].double().exp().flatten()
    return (sums[:-1] - sums[-1] / KEYS) / (KEYS - 1)


def _roots(fmt: Format, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Squares that the format holds, and their roots."""
    high = 2 ** (fmt.precision // 2)
    roots = torch.arange(1, high) if high <= 2**12 else torch.randint(1, high, (2**12,), generator=generator)
    return (roots * roots).to(fmt.dtype), roots.to(fmt.dtype)


PI = math.pi
ELEMENTARY: dict[str, Elementary] = {
    "exp": Elementary(torch.exp, np.exp, ((-104, 89), (-1, 1))),
    "log": Elementary(torch.log, np.log, ((0, 10), (0.5, 2))),
    "tanh": Elementary(torch.tanh, np.tanh, ((-10, 10), (-1, 1)), bounded=True),
    "erf": Elementary(torch.erf, None, ((-4, 4), (-1, 1)), bounded=True),
    "sin": Elementary(torch.sin, np.sin, ((-PI, PI), (-1e5, 1e5)), bounded=True),
    "cos": Elementary(torch.cos, np.cos, ((-PI, PI), (-1e5, 1e5)), bounded=True),
    "pow": Elementary(torch.pow, np.power, ((0.1, 10), (0.9, 1.1)), numbers=(2, 3, 0.5, -0.5, -1, -2, 1.7)),
    "atan2": Elementary(torch.atan2, np.arctan2, ((-10, 10), (0.9, 1.1))),
    "rsqrt": Elementary(torch.rsqrt, lambda x: 1 / np.sqrt(x), ((0, 10), (0.25, 4))),
    "divide": Elementary(torch.div, np.divide, ((-10, 10), (1, 2))),
    "divide_by_number": Elementary(torch.div, np.divide, (), numbers=(3, 7, 49, 0.1, 1.7, -1e4)),
    "sqrt": Elementary(torch.sqrt, np.sqrt, ((0, 10), (0.25, 4)), known=_roots),
    "expm1": Elementary(torch.expm1, np.expm1, ((-20, 89), (-1, 1))),
    "log1p": Elementary(torch.log1p, np.log1p, ((-1, 10), (-0.5, 0.5))),
    "sigmoid": Elementary(torch.sigmoid, _sigmoid, ((-104, 104), (-4, 4)), bounded=True),
    "fused_exp": Elementary(_fused_exp, np.exp, (), formats=(FP32,), arguments=_bf16_scores, on_cpu_alone=True),
}


@dataclass
class Worst:
    """The largest error of a function, over formats, ranges and layouts."""

    ulp: float = 0
    where: str = NONE
    samples: int = 0
    low: float = math.inf
    high: float = -math.inf
    low_at: str = NONE
    high_at: str = NONE
    narrow: dict[str, tuple[float, str]] = field(default_factory=dict)  # ULPs of formats that are rounded to twice.


def measure(name: str, device: torch.device, claim: Any, count: int, flushes: bool, loose: bool, seed: int) -> Worst:
    """claim: what the profile states of the function (absolute, slope, argument_max); loose: it claims a rounding other
    than to nearest."""
    function, worst = ELEMENTARY[name], Worst()
    generator = torch.Generator().manual_seed(seed)
    for fmt in function.formats:
        if fmt is FP64 and (function.reference is None or np.finfo(np.longdouble).nmant <= 52):
            continue
        for arguments in _samples(name, function, fmt, count, generator):
            if flushes:
                arguments = tuple(torch.where(x.abs() < fmt.smallest_normal, torch.ones_like(x), x) for x in arguments)
            _measure(function, fmt, arguments, device, claim, flushes, loose, worst)
        if claim.ulp <= FAITHFUL and function.known is not None:
            _compare_exact(function, fmt, function.known(fmt, generator), device, claim, worst)
    return worst


def _compare_exact(
    function: Elementary,
    fmt: Format,
    known: tuple[torch.Tensor, torch.Tensor],
    device: torch.device,
    claim: Any,
    worst: Worst,
) -> None:
    """A miss counts as more ULPs than are claimed, and than let results be exact."""
    arguments, results = (x.to(device) for x in known)
    for given in (arguments, torch.stack([arguments, arguments], 1)[:, 0]):
        got = function.compute(given)
        if missed := (got != results).nonzero().flatten().tolist():
            at, least = missed[0], claim.ulp + 0.5
            if least > worst.ulp:
                worst.ulp = least
                worst.where = f"{fmt.name} ({arguments[at].item()!r}): {got[at].item()!r}, no {results[at].item()!r}"


def _samples(
    name: str, function: Elementary, fmt: Format, count: int, generator: torch.Generator
) -> Iterator[Arguments]:
    if function.arguments is not None:
        yield (function.arguments(),)
        return
    two = name in ("pow", "divide", "atan2")
    if fmt is FP64:
        count = max(1, count // 16)  # References beyond fp64 are slow.

    def uniform(low: float, high: float) -> torch.Tensor:
        x = torch.rand(count, generator=generator, dtype=torch.float64)
        return (low + (high - low) * x).to(fmt.dtype)

    if fmt in (FP16, BF16):
        bits = every_half(fmt)
    else:
        bits = finite_bits(fmt, count, generator)
    by_numbers_alone = function.numbers and not function.ranges
    if not two and not by_numbers_alone:
        yield (bits,)
        if fmt in (FP16, BF16):
            return
        for low, high in function.ranges:
            yield (uniform(low, high),)
        return
    if two:
        order = torch.randperm(len(bits), generator=generator)
        yield bits.abs(), bits[order]
        for low, high in function.ranges:
            yield uniform(low, high), uniform(*((-30, 30) if name == "pow" else (low, high)))
    for number in function.numbers:
        yield uniform(0, 10), torch.tensor(number, dtype=fmt.dtype)


def _measure(
    function: Elementary,
    fmt: Format,
    arguments: Arguments,
    device: torch.device,
    claim: Any,
    flushes: bool,
    loose: bool,
    worst: Worst,
) -> None:
    with np.errstate(all="ignore"):
        wide = [exact(x) for x in arguments]
        if function.reference is None:
            truth = function.compute(*(x.double() for x in arguments)).numpy()
        else:
            truth = function.reference(*wide)
    scalar = len(arguments) == 2 and arguments[1].ndim == 0
    tensors = [x.to(device) for x in (arguments[:1] if scalar else arguments)]
    rest = [arguments[1].item()] if scalar else []
    for strided in (False, True):  # Kernels differ.
        given = [torch.stack([x, x], 1)[:, 0] if strided else x for x in tensors]
        got = exact(function.compute(*given, *rest))
        _compare(fmt, wide, truth, got, claim, flushes, loose, worst, function.bounded)


def _compare(
    fmt: Format,
    wide: list[np.ndarray],
    truth: np.ndarray,
    got: np.ndarray,
    claim: Any,
    flushes: bool,
    loose: bool,
    worst: Worst,
    bounded: bool,
) -> None:
    x = np.broadcast_to(wide[0], truth.shape)
    compute = FP32 if fmt in (FP16, BF16) else fmt
    rounding = 2 if loose else 1
    with np.errstate(all="ignore"):
        told = np.isfinite(truth) & (np.abs(truth) < fmt.largest)  # Beyond lies overflow, which is no error here.
        if bounded:
            _widen_range(x, got, np.isfinite(got) & np.isfinite(truth), fmt, worst)
        if claim.HasField("argument_max"):
            told &= np.abs(x) <= claim.argument_max
        total, size = np.abs(got - truth), np.abs(truth)
        error = total
        if compute is not fmt:  # What the storage's rounding does not explain.
            eta = fmt.smallest_normal if flushes else rounding * fmt.eta
            error = (total - rounding * fmt.u * size - eta) / (1 + rounding * fmt.u)
        scale, slope = (2.0**-29, 0.0) if compute is FP64 else (1.0, claim.ulp_slope)
        charged = compute.u * (size + compute.smallest_normal / (compute.u if flushes else 1))
        ulp = ((error - claim.absolute * scale) / charged - rounding) / 2 - slope * np.abs(x)
        ulp = np.where(told, np.where(np.isnan(ulp), np.inf, ulp), 0)
    worst.samples += int(told.sum())
    at = int(ulp.argmax())
    top = max(0.0, float(ulp[at]))
    second = f", {float(np.broadcast_to(wide[1], truth.shape)[at])!r}" if len(wide) == 2 else ""
    where = f"{fmt.name} ({float(x[at])!r}{second}): {float(got[at])!r}"
    if compute is not fmt:
        own = float(total[at] / (2 * fmt.u * (size[at] + fmt.smallest_normal)))
        if top > max(claim.ulp, 1) and own > worst.narrow.get(fmt.name, (0.0, ""))[0]:
            worst.narrow[fmt.name] = (own, where)
        return
    if compute is FP64 and claim.function not in ("divide", "sqrt") and top <= 1:
        return  # In fp64 every function may be off by 1, whatever is claimed.
    if top > worst.ulp:
        worst.ulp, worst.where = top, where


def _widen_range(x: np.ndarray, got: np.ndarray, told: np.ndarray, fmt: Format, worst: Worst) -> None:
    if not told.any():
        return
    low, high = int(np.where(told, got, np.inf).argmin()), int(np.where(told, got, -np.inf).argmax())
    if got[low] < worst.low:
        worst.low, worst.low_at = float(got[low]), f"{fmt.name} ({float(x[low])!r})"
    if got[high] > worst.high:
        worst.high, worst.high_at = float(got[high]), f"{fmt.name} ({float(x[high])!r})"
