"""Roundings, flushes, sums and products of matrices: what a profile claims of a device's arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .formats import BF16, FP16, FP32, FP64, Format, exact

PRODUCTS = {"fp64": FP64, "fp32": FP32, "fp16": FP16, "bf16": BF16}
ROWS = 16


@dataclass
class Ratio:
    """The factor that a claim would need."""

    factor: float = 0
    where: str = "nowhere"
    samples: int = 0

    def take(self, factors: np.ndarray, what: str) -> None:
        self.samples += factors.size
        top = float(np.max(np.where(np.isnan(factors), np.inf, factors), initial=0.0))
        if top > self.factor:
            self.factor, self.where = top, what


def flushes(device: torch.device) -> str | None:
    """An elementwise operation whose subnormal operand or result became zero."""
    tiny = FP32.smallest_normal
    for count in (1, 4096):  # A vectorised loop, and its end.
        x = torch.full((count,), tiny / 4, device=device)
        operations = {
            "mul of a subnormal": x * 2.0**20,
            "mul with a subnormal result": torch.full_like(x, 2.0**-70) * 2.0**-60,
            "add of subnormals": x + x,
            "div with a subnormal result": torch.full_like(x, tiny) / 8.0,
            "sub with a subnormal result": torch.full_like(x, 1.5 * tiny) - tiny,
        }
        for what, y in operations.items():
            if bool((y == 0).any()):
                return what
    return None


def rounding(device: torch.device) -> tuple[str, str]:
    """NEAREST, TOWARD_ZERO or STOCHASTIC (either neighbour), and what showed it."""
    found = "NEAREST", "as is right"
    for sign in (1.0, -1.0):
        one = torch.full((4096,), sign, device=device)
        for part in (0.25, 0.5, 0.75):  # Of the step from 1 to its neighbour; a tie goes to 1, which is even.
            near, away = 1.0, 1 + 2 * FP32.u
            added = (one + sign * part * 2 * FP32.u).abs()
            cast = torch.full((4096,), sign * (1 + part * 2 * BF16.u), device=device).to(torch.bfloat16).float().abs()
            for what, got, far in (("add", added, away), ("cast to bf16", cast, 1 + 2 * BF16.u)):
                right = far if part > 0.5 else near
                if bool((got == right).all()):
                    continue
                what = f"{what}: {sign:+g} and {part:g} of a step became {sign * float(got[got != right][0])!r}"
                if not bool((got == near).all()):
                    return "STOCHASTIC", what
                found = "TOWARD_ZERO", what
    return found


def one_pass(device: torch.device) -> str | None:
    """A variance that loses what E[x^2] - E[x]^2 loses: 6e-8 mean^2, where two passes and Welford lose 1e-6 mean."""
    x = 1e4 + torch.linspace(-2, 2, 16, device=device).repeat(4, 1)
    truth = x.double().var(1, unbiased=False)
    found = {
        "var": x.var(1, unbiased=False).double(),
        "layer_norm": torch.native_layer_norm(x, [16], None, None, 0.0)[2].flatten().double() ** -2,
        "batch_norm": torch.native_batch_norm(x.T.contiguous(), None, None, None, None, True, 0.0, 0.0)[2].double()
        ** -2,
    }
    for what, value in found.items():
        if not bool(((value - truth).abs() <= 0.25 * truth).all()):
            return f"{what} of 16 numbers near 1e4: {value[0].item():.3g}, not {truth[0].item():.3g}"
    return None


def _data(fmt: Format, n: int, generator: torch.Generator) -> Iterator[tuple[str, torch.Tensor]]:
    """ROWS rows of n, in fp64, that the format holds. The swallowed: 1, then what one addition at a time would lose."""

    def held(x: torch.Tensor) -> torch.Tensor:
        return x.to(fmt.dtype).double()

    normal = torch.randn(ROWS, n, generator=generator, dtype=torch.float64)
    yield "normal", held(normal)
    yield "positive", held(normal.abs() + 0.1)
    yield "wide", held(normal * 2.0 ** torch.randint(-6, 7, (ROWS, n), generator=generator).double())
    half = held(normal[:, : n // 2])
    yield "cancelling", torch.cat([half, -half], 1)[:, torch.randperm(n // 2 * 2, generator=generator)]


def _swallowed(accumulator: Format, n: int) -> torch.Tensor:
    x = torch.full((ROWS, n), accumulator.u * (1 - 2.0**-6), dtype=torch.float64)
    x[torch.arange(ROWS), torch.arange(ROWS) * (n // ROWS)] = 1
    return x


def sums(device: torch.device, claim: Any, lengths: tuple[int, ...], loose: bool, seed: int) -> Ratio:
    """claim: k of `sum`. The factor c of |error| <= c n_eff u sum|x|, sums of narrow numbers being held in fp32."""
    worst, generator = Ratio(), torch.Generator().manual_seed(seed)
    for n in lengths:
        for fmt in (FP32, FP64, FP16, BF16):
            held = FP64 if fmt is FP64 else FP32
            cases = list(_data(fmt, n, generator))
            if fmt is held:
                cases.append(("swallowed", _swallowed(held, n)))
            for what, rows in cases:
                truth = np.array([math.fsum(row) for row in rows.tolist()])
                size = np.array([math.fsum(map(abs, row)) for row in rows.tolist()])
                x = rows.to(device, fmt.dtype)
                n_eff = claim.k * math.ceil(n / claim.k)
                for how, given, dim in (("rows", x, 1), ("columns", x.T.contiguous(), 0)):
                    error = np.abs(given.sum(dim, dtype=held.dtype).double().cpu().numpy() - truth)
                    factor = error / (n_eff * held.u * (2 if loose else 1) * size)
                    worst.take(factor, f"{what} {fmt.name}, {n} terms in {how}")
    return worst


def kept_bits(device: torch.device, fmt: Format) -> int:
    """Bits of its largest partial sum that a product of matrices keeps wherever the terms stand: 2^12 + 2^(12-j) - 2^12
    is 2^(12-j) up to j = bits - 1."""
    limit, n = (53 if fmt is FP64 else 24), 64
    generator = torch.Generator().manual_seed(1)
    places = torch.stack([torch.randperm(n, generator=generator)[:3] for _ in range(256)])
    ones = torch.ones(n, ROWS, dtype=fmt.dtype, device=device)
    rows = torch.arange(len(places))
    for j in range(1, limit):
        a = torch.zeros(len(places), n, dtype=torch.float64)
        a[rows, places[:, 0]], a[rows, places[:, 1]], a[rows, places[:, 2]] = 2.0**12, -(2.0**12), 2.0 ** (12 - j)
        if not bool(((a.to(device, fmt.dtype) @ ones).double() == 2.0 ** (12 - j)).all()):
            return j
    return limit


def input_bits(device: torch.device) -> tuple[int, bool]:
    """Bits that a product keeps of fp32 elements, and whether it cuts the others off. On a CPU also a convolution, of
    which a program may say otherwise; the fewer of both."""
    forms = [lambda x, eye: x @ eye]
    if device.type == "cpu":
        forms.append(lambda x, eye: torch.conv2d(x.view(64, 64, 1, 1), eye.view(64, 64, 1, 1)).view(64, 64))
    return min(_bits_kept(form, device) for form in forms)


def _bits_kept(form: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], device: torch.device) -> tuple[int, bool]:
    eye = torch.eye(64, device=device)
    kept = 24
    for j in range(1, 24):
        x = torch.full((64, 64), 1 + 2.0**-j, device=device)
        if not torch.equal(form(x, eye), x):
            kept = j
            break
    if kept == 24:
        return kept, False
    x = torch.full((64, 64), 1 + 1.75 * 2.0**-kept, device=device)  # To nearest: 1 + 2^(1 - kept).
    return kept, bool((form(x, eye) == 1).all())


def product_flushes(device: torch.device, fmt: Format) -> str | None:
    tiny = fmt.smallest_normal
    x = torch.full((ROWS, 64), tiny / 4, dtype=fmt.dtype, device=device)
    up = torch.full((64, ROWS), 2.0**10, dtype=fmt.dtype, device=device)
    if bool((x @ up == 0).any()):
        return "subnormal elements"
    if fmt is BF16:
        x, up = torch.full_like(x, 2.0**-70), torch.full_like(up, 2.0**-63)
        if bool((x @ up == 0).any()):
            return "subnormal products"
    return None


def products(
    device: torch.device,
    fmt: Format,
    claim: Any,
    split_parts: int,
    lengths: tuple[int, ...],
    loose: bool,
    flush: bool,
    seed: int,
) -> Ratio:
    """claim: k, accumulator_bits, promote_every and flushes of a class. The factor c that it would need, beside the
    roundings of promotions and split sums, underflow, and the result's storage."""
    worst, generator = Ratio(), torch.Generator().manual_seed(seed)
    compute = FP64 if fmt is FP64 else FP32
    u = 2.0**-claim.accumulator_bits if claim.HasField("accumulator_bits") else compute.u
    slack = 2 if loose else 1
    for n in lengths:
        cases = list(_data(fmt, n, generator))
        swallowed = _swallowed(compute, n)
        cases.append(("swallowed", swallowed))
        cases.append(("swallowed and cancelled", torch.where(swallowed.roll(n // 3, 1) == 1, -1.0, swallowed)))
        for what, left in cases:
            b = torch.randn(n, ROWS, generator=generator, dtype=torch.float64)
            if "swallowed" in what:  # One factor alone cannot hold it in every format.
                small = 2.0 ** -(compute.precision // 2)
                left = left / small
                b = torch.full_like(b, small)
            elif what == "cancelling":  # A stored result rounds the others' errors away; here only they are left.
                mirrored = torch.randperm(n, generator=generator)
                left = torch.cat([left[:, : n // 2], -left[:, : n // 2]], 1)[:, mirrored]
                b = torch.cat([b[: n // 2], b[: n // 2]])[mirrored]
            a, b = left.to(fmt.dtype), b.to(fmt.dtype)
            wide_a, wide_b = exact(a), exact(b)
            truth, size = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
            for how, got in (
                ("matrix", a.to(device) @ b.to(device)),
                ("vector", torch.stack([a.to(device) @ column for column in b.to(device).T.contiguous()], 1)),
            ):
                error = np.abs(exact(got) - truth)
                if fmt is not compute:
                    error = (error - slack * (fmt.u * np.abs(truth) + fmt.eta)) / (1 + slack * fmt.u)
                promoted = 0 < claim.promote_every < n
                gathered = claim.promote_every if promoted else n
                rounds = (math.ceil(n / claim.promote_every) if promoted else 0) + (
                    split_parts if split_parts > 1 else 0
                )
                error = error - slack * rounds * compute.u * size - n * slack * compute.eta
                if claim.flushes or flush:
                    tiny = FP32.smallest_normal
                    error = error - tiny * (np.abs(wide_a).sum(1)[:, None] + np.abs(wide_b).sum(0)[None] + n)
                n_eff = claim.k * math.ceil(gathered / claim.k)
                factor = error / (n_eff * u * size * (slack if claim.k == 1 else 1))
                worst.take(factor.astype(np.float64), f"{what}, {n} terms, {how}")
    return worst
