"""Derivatives of samples of gamma, beta and Dirichlet distributions by their parameters. Their mathematics is the
implicit function -(dF/da) / f of the distribution function F and its density f (Figurnov et al., "Implicit
Reparameterization Gradients", 2018). What PyTorch computes are approximations of it by regions, which differ by up to
a thousandth from it: these are what a program trains with, and what its operations are held to. As
ATen/native/Distributions.h has them, with its numbers, for the host; devices compute in another precision, and stay
opaque."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import PlumblineError
from .register import of

_GAMMA = (
    (0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1, 0.32668115, 0.10406089, 0.0014179084),
    (0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623),
    (0.040121004, -0.0065914022, -0.0026286047, -0.0013441777,
     0.017050642, -0.0021309326, 0.00085092367, -1.5247877e-07),
)  # fmt: skip

# Numerator and denominator, by the powers of log(x), log(a), log(b).
_DIRICHLET = (
    (
        ((1.003668233, -0.01061107488, -0.0657888334, 0.01201642863),
         (0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033),
         (-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013)),
        ((0.221950385, -0.3187676331, 0.01799915743, 0.01074823814),
         (-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057),
         (0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05)),
        ((-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565),
         (0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181),
         (0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05)),
    ),
    (
        ((1, -0.02924021934, -0.04438342661, 0.007285809825),
         (0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521),
         (-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149)),
        ((0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273),
         (0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956),
         (-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05)),
        ((0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05),
         (0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05),
         (-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06)),
    ),
)  # fmt: skip

# Where regions end: PyTorch compares with numbers of fp32.
_SMALL, _FROM, _UNTIL = (float(torch.tensor(x, device="cpu")) for x in (0.8, 0.9, 1.1))


@of("_standard_gamma_grad.default")
def standard_gamma_grad(a: Tensor, x: Tensor) -> Tensor:
    """In fp64 whatever its tensors are."""
    own = _checked(a, x)
    a, x = a.double(), x.double()
    small, large = x < _SMALL, a > 8
    near = (x >= _FROM * a).logical_and(x <= _UNTIL * a)
    proper = (x > 0).logical_and(a > 0)
    # Each region's formula is given numbers that lie in it, and is taken there alone.
    series = _gamma_series(*_within(small.logical_and(proper), (a, 1.0), (x, 0.5)))
    about = _gamma_about_mode(*_within(large, (a, 16.0), (x, 16.0)))
    away = _gamma_saddle(*_within(large.logical_and(near.logical_not()), (a, 16.0), (x, 8.0)))
    between = (large.logical_or(small)).logical_not()
    rest = _gamma_rational(*_within(between, (a, 1.0), (x, 1.0)))
    found = torch.where(large, torch.where(near, about, away), rest)
    return torch.where(small, torch.where(proper, series, 0.0), found).to(own)


def _gamma_series(a: Tensor, x: Tensor) -> Tensor:
    numerator, denominator = torch.ones_like(x), a
    first, second = 1 / denominator, 1 / (denominator * denominator)
    for i in range(1, 6):
        numerator = numerator * (-x / i)
        denominator = denominator + 1
        first = first + numerator / denominator
        second = second + numerator / (denominator * denominator)
    power = x**a
    slope = (x.log() - torch.digamma(a)) * (power * first) - power * second
    return -slope / (x ** (a - 1) * torch.exp(-x))


def _gamma_about_mode(a: Tensor, x: Tensor) -> Tensor:
    first = 1 + 24 * a * (1 + 12 * a)
    second = 1440 * (a * a) + 6 * x * (53 - 120 * x) - 65 * x * x / a + a * (107 + 3600 * x)
    return first * second / (1244160 * (a * a) * (a * a))


def _gamma_saddle(a: Tensor, x: Tensor) -> Tensor:
    denominator = (8 * a).sqrt()
    second = denominator / (a - x)
    third = (x - a - a * (x / a).log()) ** -1.5
    both = torch.where(x < a, second - third, second + third)
    first = (x / a).log() * both - (2 / a).sqrt() * (a + x) / ((a - x) * (a - x))
    stirling = 1 + 1 / (12 * a) * (1 + 1 / (24 * a))
    return -stirling * (x * first) / denominator


def _gamma_rational(a: Tensor, x: Tensor) -> Tensor:
    u, v = (x / a).log(), a.log()
    c = [_GAMMA[0][i] + u * (_GAMMA[1][i] + u * _GAMMA[2][i]) for i in range(8)]
    return torch.exp(_polynomial(c[:4], v) / _polynomial(c[4:], v))


@of("_dirichlet_grad.default")
def dirichlet_grad(x: Tensor, a: Tensor, total: Tensor) -> Tensor:
    """Near the ends in the tensors' own precision, elsewhere in fp64."""
    _checked(x, a, total)
    b, boundary = total - a, total * x * (1 - x)
    inside = (x > 0).logical_and(x < 1)
    low = (x <= 0.5).logical_and(boundary < 2.5)
    high = (x >= 0.5).logical_and(boundary < 0.75).logical_and(low.logical_not())
    ends = low.logical_or(high)
    large = (a > 6).logical_and(b > 6)
    at_low = _beta_series(*_within(low.logical_and(inside), (x, 0.25), (a, 1.0), (b, 0.5)))
    at_high = -_other_beta_series(*_within(high.logical_and(inside), (1 - x, 0.25), (b, 0.5), (a, 0.5)))
    middle = large.logical_and(ends.logical_not())
    saddle = _beta_saddle(*_within(middle, (x, 0.25), (a, 8.0), (total, 16.0)))
    others = (middle.logical_or(ends)).logical_not()
    rest = _beta_rational(*_within(others, (x, 0.5), (a, 1.0), (total, 4.0)))
    found = torch.where(middle, saddle, rest)
    at_ends = torch.where(inside, torch.where(low, at_low, at_high), 0.0)
    return torch.where(ends, at_ends, found)


def _beta_series(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    factor = torch.digamma(a) - torch.digamma(a + b) - x.log()
    numerator = torch.ones_like(x)
    series = numerator / a * (factor + 1 / a)
    for i in range(1, 11):
        numerator = numerator * ((i - b) * x / i)
        denominator = a + i
        series = series + numerator / denominator * (factor + 1 / denominator)
    return x * (1 - x) ** -b * series


def _other_beta_series(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    factor = torch.digamma(a + b) - torch.digamma(b)
    numerator, product, slope, series = torch.ones_like(x), torch.ones_like(x), torch.zeros_like(x), factor / a
    for i in range(1, 9):
        numerator = numerator * (-x / i)
        slope = slope * (b - i) + product
        product = product * (b - i)
        series = series + numerator / (a + i) * (slope + factor * product)
    return -((1 - x) ** (1 - b)) * series


def _beta_saddle(x: Tensor, a: Tensor, total: Tensor) -> Tensor:
    own = x.dtype
    x, a, b = x.double(), a.double(), total.double() - a.double()
    total = a + b
    mean = a / total
    deviation = (a * b / (total + 1)).sqrt() / total
    near = (x >= mean - 0.1 * deviation).logical_and(x <= mean + 0.1 * deviation)
    about = (43 + 20 * (16 + 27 * b) * x) * (b * b) * b + a * (
        3 * (59 + 180 * b - 90 * x) * (b * b)
        + a * ((453 + 1620 * b * (1 - x) - 455 * x) * b + a * (8 * (1 - x) * (135 * b - 11)))
    )
    about = 47 * x * (b * b) * (b * b) + a * about
    about = (1 + 12 * a) * (1 + 12 * b) / (total * total) / (1 - x) * about
    about = about / (12960 * a * a * a * b * b * (1 + 12 * total))
    x = torch.where(near, mean * 0.5, x)  # The rest is singular at the mean.
    stirling = [1 + 1 / (12 * z) + 1 / (288 * z * z) for z in (a, b, total)]
    off = a * (x - 1) + b * x
    first = (2 * (a * a) * (x - 1) + a * b * (x - 1) - x * (b * b)) / ((2 * a / b).sqrt() * total**1.5 * off * off)
    second = 0.5 * (a / (total * x)).log()
    third = (8 * a * b / total).sqrt() / off
    fourth = (b * (b / (total * (1 - x))).log() + a * (a / (total * x)).log()) ** -1.5
    both = third + torch.where(x < mean, fourth, -fourth)
    away = stirling[0] * stirling[1] / stirling[2] * (-x / (2 * a * b / total).sqrt()) * (first + second * both)
    return torch.where(near, about, away).to(own)


def _beta_rational(x: Tensor, a: Tensor, total: Tensor) -> Tensor:
    own = x.dtype
    digammas = torch.digamma(total).double() - torch.digamma(a).double()
    x, a, total = x.double(), a.double(), total.double()
    u = x.log()
    v = a.log() - u
    w = total.log() - v
    sums = []
    for c in _DIRICHLET:
        terms = [_polynomial(c[i][j], w) * (u**i * v**j) for i in range(3) for j in range(3)]
        sums.append(sum(terms[1:], terms[0]))
    return (sums[0] / sums[1] * (x * digammas / (total - a))).to(own)


def _checked(*tensors: Tensor) -> torch.dtype:
    """The tensors' type."""
    if any(tensor.device.type != "cpu" for tensor in tensors):
        raise PlumblineError("tensors on a device, which computes in another precision")
    return tensors[0].dtype


def _within(region: Tensor, *values: tuple[Tensor, float]) -> list[Tensor]:
    """Tensors, and outside of a region numbers that lie in it."""
    return [torch.where(region, value, other) for value, other in values]


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    *lower, found = coefficients
    for c in reversed(lower):
        found = c + x * found
    return found
