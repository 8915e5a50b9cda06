"""Fused optimizer steps of CUDA builds, dispatched on the CPU by kernels of the tests."""

from collections.abc import Callable, Iterable, Iterator

import cuda_optimizers
import pytest
import torch
from cuda_kernels import on_the_cpu, wrong
from torch import Tensor, nn

import plumbline

Make = Callable[..., torch.optim.Optimizer]
FUSED: dict[str, tuple[Make, str]] = {
    "adamw": (lambda p, **how: torch.optim.AdamW(p, 1e-2, (0.9, 0.999), weight_decay=0.1, **how), "beta2"),
    "adam": (lambda p, **how: torch.optim.Adam(p, 1e-2, (0.3, 0.98), weight_decay=0.1, **how), "beta2"),
    "sgd": (lambda p, **how: torch.optim.SGD(p, 1e-2, 0.9, 0.9, weight_decay=0.1, **how), "dampening"),
}


@pytest.fixture(autouse=True, scope="module")
def kernels() -> Iterator[None]:
    with on_the_cpu(cuda_optimizers.KERNELS):
        yield


def trained(make: Make, how: dict[str, bool], steps: int, dtype: torch.dtype) -> Callable[[], dict[str, Tensor]]:
    def program() -> dict[str, Tensor]:
        torch.manual_seed(7)
        model = nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 8)).to(dtype)
        optimizer = make(model.parameters(), **how)
        # Gradients that hardly change from step to step: the first moment is near them.
        x = torch.randn(32, 12).to(dtype)
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return {name: parameter.detach().float() for name, parameter in model.named_parameters()}

    return program


def verdict_of(programs: Iterable[Callable[[], dict[str, Tensor]]], server: str, profile: str) -> plumbline.Verdict:
    target, reference = programs
    return plumbline.compare(target, reference, server, capture="outputs", profile=profile)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FUSED)
def test_as_cuda_computes_it(server: str, name: str, dtype: torch.dtype) -> None:
    make, parameter = FUSED[name]
    for steps in (1, 3):
        programs = trained(make, {"fused": True}, steps, dtype), trained(make, {"foreach": True}, steps, dtype)
        verdict = verdict_of(programs, server, "cuda-sm90")
        assert verdict.verdict == "TYPE_I", verdict.explain()
        assert verdict.coverage.work_audited == verdict.coverage.work
    with wrong(parameter, -0.01):
        verdict = verdict_of((programs[0], None), server, "cuda-sm90")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
    assert verdict.suspect is not None and "_fused_" in verdict.suspect.op


def test_a_processor_s_numbers_are_exact(server: str) -> None:
    """What CUDA's kernel may do, the CPU's may not."""
    programs = trained(FUSED["adamw"][0], {"fused": True}, 3, torch.float32), None
    verdict = verdict_of(programs, server, "pytorch-cpu")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
