"""A tensor without dimensions takes the 16-bit format of what it meets, as PyTorch's loops have it (but for a factor or
divisor on the right): nobody is accused of that, and of more than that as before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import plumbline

# `s` has no dimensions and more digits than `x` and `y`; `y` is positive.
LOOPS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "times": lambda s, x, y: s * x,
    "times-right": lambda s, x, y: x * s,
    "times-in-place": lambda s, x, y: (x * 1).mul_(s),
    "over": lambda s, x, y: s / y,
    "over-right": lambda s, x, y: x / s,
    "floor": lambda s, x, y: torch.div(x * 8, s, rounding_mode="floor"),
    "power": lambda s, x, y: y**s,
    "power-of": lambda s, x, y: torch.pow(s, x),
    "atan2": lambda s, x, y: torch.atan2(x, s) + torch.atan2(s, y),
    "hypot": lambda s, x, y: torch.hypot(x, s),
    "logaddexp": lambda s, x, y: torch.logaddexp(s, x) + torch.logaddexp2(y, s),
    "xlogy": lambda s, x, y: torch.xlogy(s, y),
    "remainder": lambda s, x, y: torch.remainder(x * 8, s) + torch.fmod(x * 8, s),
    "lerp": lambda s, x, y: torch.lerp(x, y, s),
    "addcmul": lambda s, x, y: torch.addcmul(x, y, s) + torch.addcmul(s, x, y, value=0.3),
    "addcdiv": lambda s, x, y: torch.addcdiv(x, s, y) + torch.addcdiv(x, y, s),
    "foreach": lambda s, x, y: torch._foreach_addcmul([x], [y], [s], value=-1)[0],
    "compare": lambda s, x, y: torch.where(y > s, x, y),
}


def numbers(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(64, 24, generator=generator).to(dtype)
    return x, (0.5 + torch.rand(64, 24, generator=generator)).to(dtype)


def verdict_of(
    server: str, run: str, weight: Tensor, step: Callable[[], Tensor], reference: str | None = None
) -> plumbline.Verdict:
    parameter = torch.nn.Parameter(weight)
    audit = plumbline.watch(
        torch.nn.ParameterList([parameter]),
        None,
        server,
        job="dimensions",
        run=run,
        reference=reference,
        every=1,
        keep_trace=True,
    )
    with audit.step():
        (step(parameter).float().sum() + parameter.float().sum()).backward()
    audit.flush()
    (verdict,) = audit.verdicts()
    audit.close()
    return verdict


def test_there_is_something_to_accuse() -> None:
    (x, y), s = numbers(torch.bfloat16), torch.tensor(1.0123456)
    for name in ("times", "over", "addcmul"):
        exact, found = LOOPS[name](s.double(), x.double(), y.double()), LOOPS[name](s, x, y).double()
        assert bool(((found - exact).abs() > 2.0**-8 * 1.3 * exact.abs()).any()), name


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("of", [torch.float32, torch.float64])
def test_what_has_no_dimensions_takes_the_others_format(
    server: str, name: str, dtype: torch.dtype, of: torch.dtype
) -> None:
    (x, y), s = numbers(dtype), torch.tensor(1.0123456, dtype=of)
    run = f"{name}-{dtype}-{of}"
    verdict = verdict_of(server, run, x, lambda weight: LOOPS[name](s, weight, y))
    assert verdict.verdict == "TYPE_I", verdict.explain()


@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_a_residual_with_a_scale_of_its_own(server: str, factor: float) -> None:
    x, _ = numbers(torch.float32)
    alpha, run = torch.tensor(0.9012345), f"rezero-{factor}"

    def step(weight: Tensor, alpha: Tensor, left: bool) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            inner = torch.tanh(weight @ x.t())
            return x @ weight.t() + (alpha * inner if left else inner * alpha)

    reference = verdict_of(server, f"{run}-left", x, lambda weight: step(weight, alpha, True))
    target = verdict_of(server, f"{run}-right", x, lambda weight: step(weight, factor * alpha, False), f"{run}-left")
    assert reference.verdict == "TYPE_I", reference.explain()
    assert target.verdict == ("TYPE_I" if factor == 1 else "TYPE_II"), target.explain()
