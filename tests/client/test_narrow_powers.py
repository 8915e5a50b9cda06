"""Kernels that round to bf16 or fp16 between their operations, as plumbline.calibrate finds them, are accused of
nothing: x**3, x**-2, and roots inverted outside of vectorised loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import plumbline

KERNELS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rsqrt": torch.rsqrt,
    "pow-0.5": lambda x: x.pow(-0.5),
    "pow3": lambda x: x.pow(3),
    "pow-2": lambda x: x.pow(-2),
}


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Two columns, of many exponents; squares of those in fp16 lie in its range."""
    generator = torch.Generator().manual_seed(4)
    largest = 30 if dtype == torch.bfloat16 else 4
    exponents = torch.randint(-largest, largest + 1, (512, 2), generator=generator)
    return ((1 + torch.rand(512, 2, generator=generator)) * 2.0**exponents).to(dtype)


def test_there_is_something_to_accuse() -> None:
    x = numbers(torch.bfloat16)[:, 0]
    for name in KERNELS:
        once, exact = 2.0**-8 * 1.01, KERNELS[name](x.double())
        assert bool(((KERNELS[name](x).double() - exact).abs() > once * exact).any()), name


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("strided", [False, True])
def test_rounding_in_between_is_no_fault(server: str, name: str, dtype: torch.dtype, strided: bool) -> None:
    weight = torch.nn.Parameter(numbers(dtype))
    model = torch.nn.ParameterList([weight])
    optimizer = torch.optim.SGD([weight], lr=0.0)
    job = f"{name}-{str(dtype).removeprefix('torch.')}-{strided}"
    audit = plumbline.watch(model, optimizer, server, job=job, every=1, capture="outputs")
    with audit.step():
        KERNELS[name](weight[:, 0] if strided else weight).float().sum().backward()
        optimizer.step()
    audit.flush()
    (verdict,) = audit.verdicts()
    audit.close()
    assert verdict.verdict == "TYPE_I", verdict.explain()


@pytest.mark.parametrize("exponent", [0.2, -0.8, 1 / 3, -1.4, 2.2])
@pytest.mark.parametrize("size", [0, 5, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_exponents_are_rounded_in_vectorised_loops_alone(
    server: str, exponent: float, size: int, dtype: torch.dtype
) -> None:
    """A tensor without dimensions, and the last elements of any, take Python's number as it is."""
    x = (10.0 ** torch.linspace(-20, 3, max(size, 1))).to(dtype) if size else torch.tensor(9.5e-10, dtype=dtype)
    weight = torch.nn.Parameter(x)
    job = f"exponents-{str(dtype).removeprefix('torch.')}-{size}-{exponent:g}"
    with plumbline.watch(torch.nn.ParameterList([weight]), server=server, job=job, every=1) as audit:
        with audit.step():
            (weight**exponent).float().sum().backward()
        assert audit.flush()
        (verdict,) = audit.verdicts()
    assert verdict.verdict == "TYPE_I", verdict.explain()


def test_another_exponent_is_one(server: str) -> None:
    x = 10.0 ** torch.linspace(-2, 2, 40)
    verdict = plumbline.compare(lambda: {"y": x**0.2}, lambda: {"y": x**0.2000001}, server)
    assert verdict.verdict == "TYPE_II", verdict.explain()


def test_an_exponent_that_python_computed_is_as_uncertain_as_what_it_read(server: str) -> None:
    draw = torch.Generator().manual_seed(0)
    x, read = 1e-12 * torch.rand(64, generator=draw) + 1e-13, torch.rand(500, generator=draw)
    sums = read.sum().item(), (read[:200].sum() + read[200:].sum()).item()
    assert sums[0] != sums[1]

    def power(parts: bool) -> dict[str, torch.Tensor]:
        total = read[:200].sum() + read[200:].sum() if parts else read.sum()
        return {"y": x ** (total.item() / 777)}

    verdict = plumbline.compare(lambda: power(True), lambda: power(False), server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
