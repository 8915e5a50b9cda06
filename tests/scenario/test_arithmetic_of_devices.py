"""What CUDA's kernels do otherwise than a processor's, emulated below the capture: legal under that device's profile,
and nowhere else."""

from collections.abc import Callable, Iterator
from typing import Any

import emulated
import pytest
import torch
import torch.nn.functional as F
from private_daemon import running
from torch import Tensor

import plumbline

aten = torch.ops.aten
Taps = Callable[[], dict[str, Tensor]]


@pytest.fixture(scope="module")
def daemon() -> Iterator[str]:
    with running() as started:
        yield started.address


def compared(daemon: str, program: Taps, kernels: dict[Any, Any], profile: str) -> plumbline.Verdict:
    """The program with those kernels against itself without."""

    def on_the_device() -> dict[str, Tensor]:
        with emulated.kernels(kernels):
            return program()

    with emulated.device():
        return plumbline.compare(on_the_device, program, daemon, profile=profile, capture="outputs")


def by_reciprocal(out: Tensor, x: Tensor, number: float) -> Tensor:
    """native/cuda/BinaryDivTrueKernel.cu, where the divisor is one number."""
    return (x.float() * (1 / torch.tensor(number, dtype=torch.float32))).to(out.dtype)


def mean(out: Tensor, x: Tensor) -> Tensor:
    """native/cuda/ReduceMomentKernel.cu."""
    return (x.float().sum() * (1 / torch.tensor(float(x.numel()), dtype=torch.float32))).to(out.dtype)


NUMBER = 0.973  # Whose reciprocal is rounded by nearly all that a rounding may move it.
DIVISIONS = {aten.div.Tensor: by_reciprocal, aten.mean.default: mean}


def divided(x: Tensor) -> Taps:
    return lambda: {"out": x / NUMBER, "mean": x.mean()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_number_is_divided_by_as_a_product(daemon: str, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    verdict = compared(daemon, divided(torch.randn(1000, dtype=dtype)), DIVISIONS, "cuda-sm90")
    assert verdict.verdict == "TYPE_I", verdict.explain()


def test_elsewhere_it_is_not(daemon: str) -> None:
    torch.manual_seed(3)
    verdict = compared(daemon, divided(torch.randn(1000)), DIVISIONS, "pytorch-cpu")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION")
    assert verdict.suspect.op == "aten::div.Tensor"


def test_a_reciprocal_in_16_bits_is_a_bug(daemon: str) -> None:
    def narrow(out: Tensor, x: Tensor, number: float) -> Tensor:
        return x * (1 / torch.tensor(number)).half().float()

    torch.manual_seed(3)
    verdict = compared(daemon, divided(torch.randn(1000)), {aten.div.Tensor: narrow}, "cuda-sm90")
    assert (verdict.verdict, verdict.suspect.op) == ("TYPE_II", "aten::div.Tensor")


def in_tf32(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    return aten.convolution(emulated.truncated(x, 13), emulated.truncated(weight, 13), bias, *rest)


@pytest.mark.parametrize(
    ("profile", "convolution", "product"),
    [
        ("cuda-sm90", "TYPE_II", "TYPE_II"),
        ("cuda-sm90+tf32-convolutions", "TYPE_I", "TYPE_II"),  # PyTorch's default on such a device.
        ("cuda-sm90+tf32", "TYPE_I", "TYPE_I"),
    ],
)
def test_convolutions_in_tf32_have_a_flag_of_their_own(
    daemon: str, profile: str, convolution: str, product: str
) -> None:
    torch.manual_seed(4)
    images, weight, bias = torch.randn(2, 8, 9, 9), torch.randn(8, 8, 3, 3), torch.randn(8)
    a, b = torch.randn(16, 64), torch.randn(64, 16)
    kernels = {aten.convolution.default: in_tf32, **emulated.products(emulated.tf32(8))}
    verdict = compared(daemon, lambda: {"out": F.conv2d(images, weight, bias, padding=1)}, kernels, profile)
    assert verdict.verdict == convolution, verdict.explain()
    assert compared(daemon, lambda: {"out": a @ b}, kernels, profile).verdict == product


def with_the_bias_apart(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
    """native/Convolution.cpp, where cuDNN convolves."""
    return aten.convolution(x, weight, None, *rest) + bias.view(1, -1, *[1] * (x.dim() - 2))


def off_by_a_bias(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
    return aten.convolution(x, weight, bias * 1.0625, *rest)


@pytest.mark.parametrize(("kernel", "expected"), [(with_the_bias_apart, "TYPE_I"), (off_by_a_bias, "TYPE_II")])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_bias_is_added_to_what_16_bits_hold(daemon: str, kernel: Any, expected: str, transposed: bool) -> None:
    torch.manual_seed(5)
    images, weight, bias = torch.randn(2, 8, 9, 9), torch.randn(8, 8, 3, 3), torch.randn(8)
    images, weight, bias = images.bfloat16(), weight.bfloat16(), bias.bfloat16()
    convolve = F.conv_transpose2d if transposed else F.conv2d
    verdict = compared(
        daemon, lambda: {"out": convolve(images, weight, bias)}, {aten.convolution.default: kernel}, "cuda-sm90"
    )
    assert verdict.verdict == expected, verdict.explain()


def in_its_own_format(out: Tensor, gradient: Tensor, result: Tensor) -> Tensor:
    """native/cuda/BinaryMiscBackwardOpsKernels.cu."""
    return gradient * (1 - result * result)


def test_the_derivative_of_tanh_is_rounded_after_each_step(daemon: str) -> None:
    torch.manual_seed(6)
    x = torch.randn(4096, dtype=torch.bfloat16, requires_grad=True)

    def program() -> dict[str, Tensor]:
        (gradient,) = torch.autograd.grad((x.tanh() * x.detach()).sum(), x)
        return {"gradient": gradient}

    kernels = {aten.tanh_backward.default: in_its_own_format}
    verdict = compared(daemon, program, kernels, "cuda-sm90")
    assert verdict.verdict == "TYPE_I", verdict.explain()


def test_what_is_said_of_reduced_precision_is_said_of_16_bits(daemon: str) -> None:
    """PyTorch's default on CUDA: products in fp32 are no less exact for it."""
    torch.manual_seed(7)
    a, b = torch.randn(16, 256), torch.randn(256, 16)

    def resolution(profile: str, dtype: torch.dtype) -> float:
        return compared(daemon, lambda: {"out": a.to(dtype) @ b.to(dtype)}, {}, profile).taps["out"].exec_resolution

    for dtype, same in ((torch.float32, True), (torch.bfloat16, False)):
        plain, reduced = (resolution(f"cuda-sm90{option}", dtype) for option in ("", "+reduced"))
        assert (reduced == plain) == same, (plain, reduced)
