"""The backward pass of the CPU's fused attention holds gradients of 16-bit inputs in their format, while the heads of a
group and blocks of queries and keys are added."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import plumbline

FORMATS = {torch.bfloat16: 256.0, torch.float16: 2048.0}  # 1 beside it is lost.


def gradients(
    q: Tensor, k: Tensor, v: Tensor, gradient: Tensor, causal: bool = False
) -> Callable[[], dict[str, Tensor]]:
    def program() -> dict[str, Tensor]:
        inputs = {name: x.clone().requires_grad_() for name, x in (("q", q), ("k", k), ("v", v))}
        scaled_dot_product_attention(*inputs.values(), is_causal=causal, enable_gqa=True).backward(gradient)
        return {name: x.grad.float() for name, x in inputs.items()}

    return program


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("heads", "queries"), [(32, 1), (1, 32 * 5), (1, 64 * 11), (1, 256 * 4)])
def test_what_is_added_to_a_large_number_is_lost(server: str, heads: int, queries: int, dtype: torch.dtype) -> None:
    """One key: its value's gradient is the sum of all."""
    blocks = max(heads, queries // {1: 1, 160: 32, 704: 64, 1024: 256}[queries])
    gradient = torch.full((1, heads, queries, 8), 0.9 * blocks / (heads * queries))
    gradient[0, 0, 0] = FORMATS[dtype]
    q, one = torch.ones(1, heads, queries, 8, dtype=dtype), torch.ones(1, 1, 1, 8, dtype=dtype)
    program = gradients(q, one, one, gradient.to(dtype))
    assert program()["v"].sub(gradient.sum((1, 2))).abs().min() > 0.7 * (blocks - 1), "Does the kernel do so?"
    verdict = plumbline.compare(program, None, server, capture="outputs")
    assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("shape", [(8, 2, 12, 12), (2, 2, 100, 40), (2, 1, 256, 1100)])
def test_healthy_gradients(server: str, shape: tuple[int, int, int, int], dtype: torch.dtype, causal: bool) -> None:
    heads, fewer, queries, keys = shape
    draw = torch.Generator().manual_seed(3)
    q, k, v, gradient = (
        torch.randn(2, n, length, 8, generator=draw).to(dtype)
        for n, length in ((heads, queries), (fewer, keys), (fewer, keys), (heads, queries))
    )
    verdict = plumbline.compare(gradients(q, k, v, gradient, causal), None, server, capture="outputs")
    assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
