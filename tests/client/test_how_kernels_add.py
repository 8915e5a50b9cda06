"""Kernels of the CPU that add up in other ways than their operation says: healthy programs whose data show it."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from cuda_kernels import fault, on_the_cpu, wrong
from torch import Tensor

import plumbline

aten = torch.ops.aten
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def drawn(*shape: int, dtype: torch.dtype = FP32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def stagnating(*shape: int, dtype: torch.dtype) -> Tensor:
    """In 16 bits whatever is added to the first element is lost."""
    x = torch.full(shape, 0.9, dtype=dtype)
    x.view(-1)[0] = 256 if dtype == BF16 else 2048
    return x


def group_norm(offset: float, pixels: int, dtype: torch.dtype) -> dict[str, Tensor]:
    x = (drawn(2, 8, pixels, pixels) * 0.1 + offset).to(dtype).contiguous(memory_format=torch.channels_last)
    return dict(
        zip(("y", "mean", "rstd"), aten.native_group_norm(x, None, None, 2, 8, pixels**2, 2, 1e-5), strict=True)
    )


def momentum(dtype: torch.dtype, nesterov: bool) -> dict[str, Tensor]:
    parameter = torch.nn.Parameter(torch.full((70,), 0.9, dtype=dtype))
    optimizer = torch.optim.SGD([parameter], 0.1, 0.9, weight_decay=0.01, nesterov=nesterov, fused=True)
    for step in range(3):
        parameter.grad = drawn(70, dtype=dtype, seed=step) * 10
        optimizer.step()
    return {"parameter": parameter.detach().float()}


def scaled(dtype: torch.dtype, inverse: float) -> dict[str, Tensor]:
    """Gradients are unscaled inside of the step, and stored so."""
    parameter, gradient = (drawn(70, dtype=dtype, seed=seed) for seed in (1, 2))
    m, v, largest = torch.zeros_like(parameter), torch.zeros_like(parameter), torch.zeros_like(parameter)
    scale, found = torch.tensor(inverse), torch.zeros(())
    lists = [[x] for x in (parameter, gradient, m, v, largest, torch.tensor(1.0))]
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "amsgrad": True}
    aten._fused_adamw_(*lists, **options, maximize=False, grad_scale=scale, found_inf=found)
    return {"parameter": parameter.float(), "gradient": gradient.float(), "largest": largest.float()}


def product(dtype: torch.dtype, beta: float, alpha: float) -> dict[str, Tensor]:
    matrix, vector = drawn(40, 30, dtype=dtype), drawn(40, dtype=dtype, seed=1)
    nearly = (-(alpha / beta) * (matrix.t().float() @ vector.float()) * 1.002).to(dtype)
    return {"y": torch.addmv(nearly, matrix.t(), vector, beta=beta, alpha=alpha)}


def segments(dtype: torch.dtype, how: str) -> dict[str, Tensor]:
    return {"y": torch.segment_reduce(stagnating(300, dtype=dtype), how, lengths=torch.tensor([200, 100]))}


def indexed(dtype: torch.dtype, with_self: bool) -> dict[str, Tensor]:
    x = torch.ones(3, dtype=dtype)
    places = torch.arange(300) % 2
    return {"y": x.index_reduce(0, places, stagnating(300, dtype=dtype), "mean", include_self=with_self)}


def several_dimensions(dtype: torch.dtype) -> dict[str, Tensor]:
    x = torch.full((30, 4, 30), 0.9, dtype=dtype)
    x[0, :, 0] = 256 if dtype == BF16 else 2048
    return {"y": x.nansum((0, 2))}


def balanced(rows: int, n: int) -> Tensor:
    """Whole numbers whose sum is 0 in most rows."""
    x = torch.randint(-3, 4, (rows, n), generator=torch.Generator().manual_seed(n)).float()
    x[: rows // 2] = torch.tensor([1.0, -1.0]).repeat(n)[:n]
    return x


def means(n: int) -> dict[str, Tensor]:
    x = balanced(20, n)
    variance, mean = torch.var_mean(x, 1)
    deviation, same = torch.std_mean(x.to(BF16), 1)
    y, of_layer, rstd = aten.native_layer_norm(x, [n], None, None, 1e-5)
    of_group = aten.native_group_norm(x.view(5, 4, n), None, None, 5, 4, n, 2, 1e-5)[1]
    found = {"variance": variance, "mean": mean, "deviation": deviation, "same": same, "y": y, "layer": of_layer}
    return {name: tap.float() for name, tap in found.items()} | {"rstd": rstd, "group": of_group}


PROGRAMS: dict[str, Callable[[], dict[str, Tensor]]] = {
    **{f"group-norm-{o}-{p}-{d}": lambda o=o, p=p, d=d: group_norm(o, p, d)
       for o, p, d in ((30, 6, FP32), (300, 6, FP32), (300, 6, BF16), (30, 6, FP16), (30, 40, FP32), (30, 40, BF16))},
    **{f"momentum-{d}-{n}": lambda d=d, n=n: momentum(d, n) for d in (BF16, FP16) for n in (False, True)},
    **{f"scaled-{d}": lambda d=d: scaled(d, 3.0) for d in (BF16, FP16)},
    **{f"addmv-{d}-{b}-{a}": lambda d=d, b=b, a=a: product(d, b, a)
       for d in (BF16, FP16) for b, a in ((1, 1), (0.3, 0.7), (1, 2))},
    **{f"segments-{d}-{how}": lambda d=d, how=how: segments(d, how) for d in (BF16, FP16) for how in ("sum", "mean")},
    **{f"indexed-{d}-{s}": lambda d=d, s=s: indexed(d, s) for d in (BF16, FP16) for s in (False, True)},
    **{f"nansum-{d}": lambda d=d: several_dimensions(d) for d in (BF16, FP16)},
    **{f"means-{n}": lambda n=n: means(n) for n in (3, 12, 17, 36, 66, 144)},
}  # fmt: skip


# What their kernels lose there is more than a tenth of the result: nothing can be said of it.
VAGUE = ("group-norm", "segments", "indexed", "nansum")


@pytest.mark.parametrize("name", PROGRAMS)
def test_healthy_kernels_are_not_accused(server: str, name: str) -> None:
    verdict = plumbline.compare(PROGRAMS[name], None, server, capture="outputs")
    assert verdict.verdict == "TYPE_I" or (verdict.verdict == "INCONCLUSIVE" and name.startswith(VAGUE)), (
        verdict.explain()
    )
    assert verdict.coverage.work_audited == verdict.coverage.work


def test_a_wrong_mean_is_found(server: str) -> None:
    """Of rows whose mean is 0: rounding moves it, but not so far."""

    def kernel(x: Tensor, shape: list[int], weight: None, bias: None, eps: float) -> tuple[Tensor, ...]:
        mean = x.mean(-1, keepdim=True) + fault.get("mean", 0)
        rstd = (x.var(-1, correction=0, keepdim=True) + eps).rsqrt()
        return (x - mean) * rstd, mean, rstd

    def program() -> dict[str, Tensor]:
        return {"y": F.layer_norm(balanced(20, 36), [36])}

    with on_the_cpu({"native_layer_norm": kernel}):
        assert plumbline.compare(program, None, server, capture="outputs").verdict == "TYPE_I"
        with wrong("mean", 1e-5):
            verdict = plumbline.compare(program, None, server, capture="outputs")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
