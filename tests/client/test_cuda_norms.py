"""Norms, samples of a grid and dropout of CUDA builds, dispatched on the CPU by kernels of the tests."""

from collections.abc import Callable, Iterator

import cuda_norms
import pytest
import torch
from cuda_kernels import on_the_cpu, wrong
from torch import Tensor, nn

import plumbline

aten = torch.ops.aten
Taps = dict[str, Tensor]
Normalise = Callable[..., Tensor]


@pytest.fixture(autouse=True, scope="module")
def kernels() -> Iterator[None]:
    with on_the_cpu(cuda_norms.KERNELS):
        yield


def cudnn(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    moments = norm.running_mean, norm.running_var
    return aten.cudnn_batch_norm(x, norm.weight, norm.bias, *moments, norm.training, 0.1, norm.eps)[0]


class Synchronized(torch.autograd.Function):
    """Of two ranks, in one program: as torch.nn.SyncBatchNorm calls the operations."""

    @staticmethod
    def forward(context, x, weight, bias, running_mean, running_var, eps):
        ranks = x.split([5, 3])
        stats = [aten.batch_norm_stats(rank.contiguous(), eps) for rank in ranks]
        means, invstds = (torch.stack(each) for each in zip(*stats, strict=True))
        counts = torch.tensor([rank.numel() / x.shape[1] for rank in ranks])
        mean, invstd = aten.batch_norm_gather_stats_with_counts(
            x, means, invstds, running_mean, running_var, 0.1, eps, counts
        )
        context.save_for_backward(x, weight, mean, invstd, counts.int())
        return torch.cat([aten.batch_norm_elemt(rank, weight, bias, mean, invstd, eps) for rank in ranks])

    @staticmethod
    def backward(context, gradient):
        x, weight, mean, invstd, counts = context.saved_tensors
        ranks = list(zip(gradient.split([5, 3]), x.split([5, 3]), strict=True))
        made = [aten.batch_norm_backward_reduce(g, rank, mean, invstd, weight, True, True, True) for g, rank in ranks]
        total, product, of_weight, of_bias = (sum(each) for each in zip(*made, strict=True))
        of_x = [
            aten.batch_norm_backward_elemt(g, rank, mean, invstd, weight, total, product, counts) for g, rank in ranks
        ]
        return torch.cat(of_x), of_weight, of_bias, None, None, None


def synchronized(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    return Synchronized.apply(x, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps)


def written_out(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    wide = x.float()
    if norm.training:
        mean, variance = wide.mean((0, 2, 3)), wide.var((0, 2, 3), unbiased=False)
        with torch.no_grad():
            n = x.numel() / x.shape[1]
            norm.running_mean.mul_(0.9).add_(mean, alpha=0.1)
            norm.running_var.mul_(0.9).add_(variance * n / (n - 1), alpha=0.1)
    else:
        mean, variance = norm.running_mean, norm.running_var
    mean, variance, weight, bias = (each.view(1, -1, 1, 1) for each in (mean, variance, norm.weight, norm.bias))
    return ((wide - mean) / (variance + norm.eps).sqrt() * weight + bias).to(x.dtype)


def program(normalise: Normalise, dtype: torch.dtype = torch.float32, training: bool = True) -> Callable[[], Taps]:
    def run() -> Taps:
        torch.manual_seed(4)
        into, norm = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, eps=1e-3).train(training)
        with torch.no_grad():
            norm.weight.uniform_(0.5, 1.5)
            norm.running_var.uniform_(0.5, 1.5)
            norm.bias.uniform_()
        x = into(torch.randn(8, 3, 6, 6) * 0.2).to(dtype)
        loss = (normalise(x, norm).float() - 0.3).pow(3).mean()
        loss.backward()
        taps = {"loss": loss, "into": into.weight.grad, "weight": norm.weight.grad, "bias": norm.bias.grad}
        return taps | {"mean": norm.running_mean * 2, "variance": norm.running_var * 2}

    return run


CASES = [
    pytest.param(cudnn, torch.float32, True, id="cudnn-fp32"),
    pytest.param(cudnn, torch.float16, True, id="cudnn-fp16"),
    pytest.param(synchronized, torch.float32, True, id="synchronized-fp32"),
]


@pytest.mark.parametrize(("normalise", "dtype", "training"), CASES)
@pytest.mark.parametrize("capture", ["leaves", "outputs"])
def test_an_honest_kernel_is_rounding(
    server: str, normalise: Normalise, dtype: torch.dtype, training: bool, capture: str
) -> None:
    target, reference = program(normalise, dtype, training), program(written_out, dtype, training)
    verdict = plumbline.compare(target, reference, server, capture=capture, profile="cuda-sm90")
    assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
    assert verdict.math_resolution < 1e-9


@pytest.mark.parametrize(
    ("normalise", "name", "operation"),
    [
        (cudnn, "eps", "cudnn_batch_norm"),
        (cudnn, "biased", "cudnn_batch_norm"),
        (cudnn, "mean", "cudnn_batch_norm_backward"),
        (synchronized, "eps", "batch_norm_stats"),
        (synchronized, "count", "batch_norm_gather_stats_with_counts"),
        (synchronized, "mean", "batch_norm_backward_elemt"),
    ],
)
def test_a_kernel_with_a_bug_is_found(server: str, normalise: Normalise, name: str, operation: str) -> None:
    with wrong(name):
        verdict = plumbline.compare(program(normalise), None, server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
    assert verdict.suspect is not None and verdict.suspect.op == f"aten::{operation}.default"


@pytest.mark.parametrize(("dtype", "count"), [(torch.bfloat16, 8), (torch.float16, 8), (torch.bfloat16, 700)])
def test_gradients_of_16_bits_are_exchanged_in_them(server: str, dtype: torch.dtype, count: int) -> None:
    def run() -> Taps:
        torch.manual_seed(4)
        x = (torch.randn(count, 6, 4, 4) + 1).to(dtype).requires_grad_()
        # Gradients of one sign: their roundings do not cancel.
        norm = nn.BatchNorm2d(6)
        (norm(x).float() * (1 + torch.rand(count, 6, 4, 4))).mean().backward()
        return {"x": x.grad.float() * 2, "weight": norm.weight.grad, "bias": norm.bias.grad}

    def judged(profile: str) -> plumbline.Verdict:
        return plumbline.compare(run, None, server, capture="outputs", profile=profile)

    verdict = judged("cuda-sm90")
    assert verdict.verdict == "TYPE_I", verdict.explain()
    assert verdict.coverage.work_audited == verdict.coverage.work
    verdicts = [judged("pytorch-cpu")]
    with wrong("total", 1.1):
        verdicts.append(judged("cuda-sm90"))
    for verdict in verdicts:
        assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
        assert verdict.suspect is not None and verdict.suspect.op == "aten::native_batch_norm_backward.default"


@pytest.mark.parametrize(("of_x", "of_gradient"), [("last", "rows"), ("rows", "last"), ("last", "last")])
def test_gradients_of_channels_last_are_exchanged_in_fp32(server: str, of_x: str, of_gradient: str) -> None:
    """Unless either lies in rows."""
    layouts = {"last": torch.channels_last, "rows": torch.contiguous_format}

    def run() -> Taps:
        torch.manual_seed(4)
        x = (torch.randn(8, 6, 4, 4) + 1).bfloat16().contiguous(memory_format=layouts[of_x]).requires_grad_()
        gradient = (1 + torch.rand(8, 6, 4, 4)).bfloat16().contiguous(memory_format=layouts[of_gradient])
        norm = nn.BatchNorm2d(6)
        norm(x).backward(gradient)
        return {"bias": norm.bias.grad}

    verdict = plumbline.compare(run, None, server, capture="outputs", profile="cuda-sm90")
    expected = "TYPE_II" if of_x == of_gradient == "last" else "TYPE_I"
    assert verdict.verdict == expected, verdict.explain()


def test_parts_in_fp16_may_overflow(server: str) -> None:
    """Sums that fp32 holds and fp16 does not: nobody is accused of the infinity."""

    def run() -> Taps:
        torch.manual_seed(4)
        x = torch.randn(64, 2, 16, 16).half().requires_grad_()
        norm = nn.BatchNorm2d(2)
        norm(x).backward((8 + torch.rand(64, 2, 16, 16)).half())
        return {"bias": norm.bias.grad}

    assert not run()["bias"].isfinite().any()
    verdict = plumbline.compare(run, None, server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.cause) == ("TYPE_I", "PRECISION_POLICY"), verdict.explain()
    assert "held in fp16" in verdict.sentence


def test_evaluation_uses_the_running_moments(server: str) -> None:
    def run(normalise: Normalise) -> Callable[[], Taps]:
        def evaluated() -> Taps:
            torch.manual_seed(4)
            norm = nn.BatchNorm2d(6, eps=1e-3).eval()
            norm.running_var.uniform_(0.5, 1.5)
            with torch.no_grad():
                return {"out": normalise(torch.randn(8, 6, 4, 4), norm) * 2}

        return evaluated

    verdict = plumbline.compare(run(cudnn), run(written_out), server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
    with wrong("eps"):
        verdict = plumbline.compare(run(cudnn), None, server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("eps", [None, 1e-6])
def test_rms_norm(server: str, dtype: torch.dtype, eps: float | None) -> None:
    draw = torch.Generator().manual_seed(1)
    small = (torch.randn(6, 12, generator=draw) * 1e-3).to(dtype)
    factor = torch.rand(12, generator=draw).to(dtype)

    def run(normalise: Callable[..., Tensor]) -> Callable[[], Taps]:
        def program() -> Taps:
            x, weight = small.clone().requires_grad_(), factor.clone().requires_grad_()
            normalise(x, weight).float().pow(3).sum().backward()
            return {"x": x.grad.float() * 2, "weight": weight.grad.float() * 2}

        return program

    def written_out(x: Tensor, weight: Tensor) -> Tensor:
        added = torch.finfo(torch.float32).eps if eps is None else eps
        return (x.float() * (x.float().square().mean(-1, keepdim=True) + added).rsqrt() * weight.float()).to(dtype)

    fused = run(lambda x, weight: aten._fused_rms_norm(x, [12], weight, eps)[0])
    verdict = plumbline.compare(fused, run(written_out), server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
    for name, operation in (("eps", "_fused_rms_norm"), ("mean", "_fused_rms_norm_backward")):
        with wrong(name):
            verdict = plumbline.compare(fused, None, server, capture="outputs", profile="cuda-sm90")
        assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
        assert verdict.suspect is not None and verdict.suspect.op == f"aten::{operation}.default"


def test_samples_of_a_grid(server: str) -> None:
    draw = torch.Generator().manual_seed(1)
    image, grid = torch.randn(2, 3, 6, 7, generator=draw), torch.rand(2, 4, 5, 2, generator=draw) * 2.4 - 1.2

    def kernel(x: Tensor, grid: Tensor) -> Tensor:
        return aten.grid_sampler_2d(x, grid, 0, 0, cuda_norms.fault == {})

    def backward(x: Tensor, grid: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return aten.grid_sampler_2d_backward(gradient, x, grid, 0, 0, True, [True, True])

    def program() -> Taps:
        x = image.clone().requires_grad_()
        out = aten.cudnn_grid_sampler(x, grid)
        out.square().sum().backward()
        return {"out": out.detach() * 2, "gradient": x.grad}

    with on_the_cpu({"cudnn_grid_sampler": kernel, "cudnn_grid_sampler_backward": backward}):
        verdict = plumbline.compare(program, None, server, capture="outputs", profile="cuda-sm90")
        assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
        with wrong("corners"):
            verdict = plumbline.compare(program, None, server, capture="outputs", profile="cuda-sm90")
        assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_s_factor_is_rounded_twice(server: str, dtype: torch.dtype) -> None:
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(1)).to(dtype)

    def dropped(p: float) -> Callable[[], Taps]:
        return lambda: {"out": torch.native_dropout(x, p, True)[0].float() * 2}

    for p in (0.1, 0.3, 0.47, 0.9):
        verdict = plumbline.compare(dropped(p), None, server, capture="outputs", profile="cuda-sm90")
        assert verdict.verdict == "TYPE_I", verdict.explain()
    with wrong("scale", 1 + 1e-6 if dtype is torch.float32 else 1.01):
        verdict = plumbline.compare(dropped(0.3), None, server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
