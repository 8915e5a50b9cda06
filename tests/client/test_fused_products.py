"""Products of fp8 numbers and of small integers, and the softmax under a mask: by PyTorch's kernels for the CPU, which
must pass, and by kernels with a bug."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cuda_kernels import on_the_cpu
from torch import Tensor

import plumbline

aten = torch.ops.aten
Taps = dict[str, Tensor]


def audited(program: Callable[[], Taps], server: str, profile: str = "cuda-sm90") -> plumbline.Verdict:
    verdict = plumbline.compare(program, None, server, capture="outputs", profile=profile)
    assert verdict.coverage.opaque == 0, verdict.explain()
    return verdict


def accused(program: Callable[[], Taps], server: str, name: str, kernel: Callable[..., Any]) -> None:
    with on_the_cpu({name: kernel}):
        verdict = audited(program, server)
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
    assert verdict.suspect is not None and verdict.suspect.op == f"aten::{name}.default"


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [False, True], ids=["a scale", "a scale each row"])
@pytest.mark.parametrize("second", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_scaled_products(server: str, out: torch.dtype, rows: bool, second: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(3)
    a = torch.randn(32, 64, generator=draw).to(torch.float8_e4m3fn)
    b = torch.randn(48, 64, generator=draw).to(second).t()
    of_a = torch.rand(32, 1, generator=draw) + 0.5 if rows else torch.tensor(0.7)
    of_b = torch.rand(1, 48, generator=draw) + 0.5 if rows else torch.tensor(1.3)
    bias = torch.randn(48, generator=draw).to(out)

    def program() -> Taps:
        plain = aten._scaled_mm(a, b, of_a, of_b, None, None, out)
        return {"plain": plain.float() * 2, "shifted": aten._scaled_mm(a, b, of_a, of_b, bias, None, out).float() * 2}

    def kernel(a, b, of_a, of_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False):
        made = (a.float() @ b.float()) * of_a.flatten()[0] * of_b * 1.1
        return (made if bias is None else made + bias.float()).to(out_dtype)

    for profile in ("cuda-sm90", "pytorch-cpu"):
        assert audited(program, server, profile).verdict == "TYPE_I"
    accused(program, server, "_scaled_mm", kernel)


def test_scaled_products_by_the_written_out_ones(server: str) -> None:
    draw = torch.Generator().manual_seed(3)
    a, b = (torch.randn(*shape, generator=draw).to(torch.float8_e4m3fn) for shape in ((16, 32), (16, 32)))
    scale = torch.tensor(0.3)
    fused = lambda: {"out": aten._scaled_mm(a, b.t(), scale, scale, None, None, torch.float32) * 2}  # noqa: E731
    written = lambda: {"out": (a.float() @ b.float().t()) * (scale * scale) * 2}  # noqa: E731
    verdict = plumbline.compare(fused, written, server, profile="pytorch-cpu")
    assert verdict.verdict == "TYPE_I" and verdict.math_resolution < 1e-9, verdict.explain()


def test_products_that_are_held_wider(server: str) -> None:
    draw = torch.Generator().manual_seed(3)
    a, b = (torch.randn(shape, generator=draw).bfloat16() for shape in ((5, 7), (7, 3)))
    c, wide = torch.randn(5, 3, generator=draw), torch.float32

    def program() -> Taps:
        return {
            "mm": aten.mm(a, b, wide) * 2,
            "addmm": aten.addmm(c, a, b, wide, beta=0.5) * 2,
            "bmm": aten.bmm(a[None], b[None], wide) * 2,
            "baddbmm": aten.baddbmm(c[None], a[None], b[None], wide) * 2,
        }

    def product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
        return a.float() @ b.float()

    def shifted(c: Tensor, a: Tensor, b: Tensor, dtype: torch.dtype, *, beta: float = 1, alpha: float = 1) -> Tensor:
        return beta * c + alpha * (a.float() @ b.float())

    kernels = {"mm.dtype": product, "bmm.dtype": product, "addmm.dtype": shifted, "baddbmm.dtype": shifted}
    with on_the_cpu(kernels):
        assert audited(program, server).verdict == "TYPE_I"
    for name, kernel in kernels.items():

        def rounded(*args: Any, kernel: Callable[..., Tensor] = kernel, **options: Any) -> Tensor:
            return kernel(*args, **options).bfloat16().float()

        with on_the_cpu(kernels | {name: rounded}):
            verdict = audited(program, server)
        assert verdict.verdict == "TYPE_II" and verdict.suspect is not None
        assert verdict.suspect.op == f"aten::{name}"


def test_products_of_integers(server: str) -> None:
    draw = torch.Generator().manual_seed(3)
    a = torch.randint(-128, 128, (17, 24), dtype=torch.int8, generator=draw)
    b = torch.randint(-128, 128, (24, 16), dtype=torch.int8, generator=draw)

    def program() -> Taps:
        return {"out": aten._int_mm(a, b).float() * 2}

    assert audited(program, server).verdict == "TYPE_I"
    accused(program, server, "_int_mm", lambda a, b: (a.int() @ b.int()).clamp(max=20000))


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_softmax_under_a_mask(server: str, kind: int) -> None:
    draw = torch.Generator().manual_seed(3)
    mask = torch.rand(*((9, 9), (2, 9), (2, 3, 9, 9))[kind], generator=draw) < 0.3
    x = torch.randn(2, 3, 9, 9, generator=draw)

    def program() -> Taps:
        y = x.clone().requires_grad_(kind == 2)  # PyTorch's derivative has no other.
        out = aten._masked_softmax(y, mask, None, kind)
        if kind == 2:
            out.square().sum().backward()
        return {"out": out.detach() * 2} | ({"gradient": y.grad * 2} if kind == 2 else {})

    def kernel(x: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Tensor:
        if mask_type == 1:
            mask = mask.view(2, 1, 1, 9)
        return x.masked_fill(mask.roll(1, -1), -math.inf).softmax(-1)

    assert audited(program, server).verdict == "TYPE_I"
    accused(program, server, "_masked_softmax", kernel)
    if kind == 2:
        backward = lambda gradient, out, mask, dim=None: gradient * out  # noqa: E731 Forgets the sum.
        accused(program, server, "_masked_softmax_backward", backward)


def test_a_row_that_is_all_masked(server: str) -> None:
    x, mask = torch.randn(1, 1, 3, 4), torch.zeros(1, 1, 3, 4, dtype=torch.bool)
    mask[..., 1, :] = True
    assert audited(lambda: {"out": aten._masked_softmax(x, mask, None, 2)[..., ::2, :] * 2}, server).verdict == "TYPE_I"
