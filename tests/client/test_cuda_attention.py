"""Fused attention of CUDA builds, dispatched on the CPU by kernels of the tests: audited against its mathematics."""

import math
from collections.abc import Callable, Iterator

import cuda_attention
import pytest
import torch
from cuda_kernels import wrong
from torch import Tensor, nn

import plumbline

aten = torch.ops.aten
Taps = dict[str, Tensor]
Attention = Callable[..., Tensor]
PROFILES = {torch.float32: "cuda-sm90", torch.bfloat16: "cuda-sm80", torch.float16: "cuda-sm90"}
LENGTH, WIDTH, HEADS = 72, 16, 4  # Three blocks of keys; no multiple of 32.


@pytest.fixture(autouse=True, scope="module")
def kernels() -> Iterator[None]:
    with cuda_attention.registered():
        yield


def flash(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, bias: None) -> Tensor:
    return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)[0]


def efficient(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, bias: Tensor | None) -> Tensor:
    return aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, 0.0, causal, scale=scale)[0]


def cudnn(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, bias: Tensor | None) -> Tensor:
    return aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True, 0.0, causal, scale=scale)[0]


def overrideable(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, bias: Tensor | None) -> Tensor:
    return aten._scaled_dot_product_fused_attention_overrideable(q, k, v, bias, 0.0, causal, scale=scale)[0]


def flash_of_lengths(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, bias: None) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    made = aten._flash_attention_forward(q, k, v, None, None, LENGTH, LENGTH, 0.0, causal, False, scale=scale)
    return made[0].transpose(1, 2)


def unfused(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, bias: Tensor | None) -> Tensor:
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if causal:
        sees = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        scores = scores.masked_fill(~sees, -math.inf)
    return scores.softmax(-1) @ v


def gradients(
    attention: Attention,
    dtype: torch.dtype,
    causal: bool = True,
    scale: float | None = None,
    bias: bool = False,
    key_heads: int = HEADS,
    size: float = 4.0,
) -> Callable[[], Taps]:
    def program() -> Taps:
        torch.manual_seed(3)
        into, out_of = nn.Linear(24, (HEADS + 2 * key_heads) * WIDTH), nn.Linear(HEADS * WIDTH, 8)
        table = nn.Parameter(torch.randn(2, HEADS, LENGTH, LENGTH)) if bias else None
        into.to(dtype)
        out_of.to(dtype)
        x = torch.randn(2, LENGTH, 24).to(dtype) * size
        heads = into(x).unflatten(-1, (-1, WIDTH)).transpose(1, 2)
        q, k, v = heads.split([HEADS, key_heads, key_heads], 1)
        mixed = attention(q, k, v, causal, scale, None if table is None else table.to(dtype))
        loss = out_of(mixed.transpose(1, 2).flatten(2)).float().square().mean()
        loss.backward()
        taps = {"loss": loss, "into": into.weight.grad, "out": out_of.weight.grad}
        return taps if table is None or attention is cudnn else taps | {"table": table.grad}

    return program


KINDS = [
    pytest.param(flash, torch.bfloat16, {}, id="flash-bf16"),
    pytest.param(flash, torch.float16, {"key_heads": 2, "causal": False}, id="flash-fp16-grouped"),
    pytest.param(efficient, torch.float32, {}, id="efficient-fp32"),
    pytest.param(efficient, torch.float32, {"bias": True, "causal": False, "scale": 0.3}, id="efficient-fp32-bias"),
    pytest.param(efficient, torch.float16, {"bias": True}, id="efficient-fp16-bias"),
    pytest.param(efficient, torch.bfloat16, {"causal": False}, id="efficient-bf16"),
    pytest.param(efficient, torch.float32, {"size": 30.0, "causal": False}, id="efficient-fp32-large"),
    pytest.param(overrideable, torch.float32, {"bias": True, "key_heads": 1}, id="overrideable-fp32-bias"),
    pytest.param(flash_of_lengths, torch.bfloat16, {"key_heads": 2}, id="flash-of-lengths-bf16"),
    pytest.param(cudnn, torch.bfloat16, {}, id="cudnn-bf16"),
    pytest.param(cudnn, torch.float16, {"causal": False, "scale": 0.5}, id="cudnn-fp16"),
]


@pytest.mark.parametrize(("attention", "dtype", "options"), KINDS)
@pytest.mark.parametrize("capture", ["leaves", "outputs"])
def test_an_honest_kernel_is_rounding(server: str, attention: Attention, dtype: torch.dtype, options, capture) -> None:
    size = 1.0 if capture == "leaves" and dtype is not torch.float32 else 4.0
    target, reference = (gradients(each, dtype, **{"size": size, **options}) for each in (attention, unfused))
    verdict = plumbline.compare(target, reference, server, capture=capture, profile=PROFILES[dtype])
    assert verdict.verdict == "TYPE_I", verdict.explain()
    assert verdict.coverage.opaque == 0, verdict.explain()
    assert verdict.math_resolution < 1e-9 and verdict.exec_resolution < (1e-4 if dtype is torch.float32 else 0.1)


@pytest.mark.parametrize(("attention", "dtype", "options"), KINDS)
def test_a_kernel_with_a_bug_is_found(server: str, attention: Attention, dtype: torch.dtype, options) -> None:
    target = gradients(attention, dtype, **options)
    faults = [("scale", 1.002 if dtype is torch.float32 else 1.5), ("late", 1), ("inner", 1)]
    if options.get("causal", True):
        faults.append(("diagonal", 1))
    for name, by in faults:
        with wrong(name, by):
            verdict = plumbline.compare(target, None, server, capture="outputs", profile=PROFILES[dtype])
        assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), (name, verdict.explain())
        assert verdict.suspect is not None and "_attention" in verdict.suspect.op
        assert name != "inner" or verdict.suspect.op.endswith("_backward.default")


def test_kernels_that_differ_in_their_masks(server: str) -> None:
    """Where there are more keys than queries, or fewer, and rows without any key."""
    torch.manual_seed(2)
    short, long = torch.randn(1, 40, 2, 8) * 3, torch.randn(1, 70, 2, 8) * 3

    def program(q: Tensor, k: Tensor, mask: int) -> Callable[[], Taps]:
        def run() -> Taps:
            made = aten._efficient_attention_forward(q, k, k, None, None, None, None, None, 0.0, mask, True)
            other = aten._flash_attention_forward(q, k, k, None, None, 1, 1, 0.0, mask > 0, False)
            return {"out": made[0] * 2, "rows": made[1] * 2, "flash": other[0] * 2, "of flash": other[1] * 2}

        return run

    for q, k in ((short, long), (long, short)):
        for mask in (0, 1, 2):
            verdict = plumbline.compare(program(q, k, mask), None, server, capture="outputs", profile="cuda-sm90")
            assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
            if mask:
                with wrong("diagonal", -1):
                    verdict = plumbline.compare(program(q, k, mask), None, server, capture="outputs")
                assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()


def test_what_is_not_modelled_is_opaque(server: str) -> None:
    q = torch.randn(1, 2, 40, 8)

    def program(**options: float) -> Callable[[], Taps]:
        return lambda: {
            "out": aten._flash_attention_forward(q, q, q, None, None, 1, 1, 0.0, False, False, **options)[0] * 2,
            "dropped": aten._scaled_dot_product_efficient_attention(q, q, q, None, True, 0.1)[0] * 2,
        }

    verdict = plumbline.compare(program(window_size_left=8), None, server)
    assert sorted(verdict.coverage.opaque_names) == [
        "aten::_flash_attention_forward.default on uint64",
        "aten::_scaled_dot_product_efficient_attention.default",
    ]
    assert plumbline.compare(program(window_size_left=-1), None, server).coverage.opaque == 1  # There is no window.


@pytest.mark.parametrize("mask", ["causal", "numbers"])
def test_what_masks_forbid_hides_nothing_of_the_cpu_s_kernel(server: str, mask: str) -> None:
    sees = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    added = None if mask == "causal" else torch.zeros(LENGTH, LENGTH).masked_fill(~sees, -math.inf)
    q = torch.randn(1, 2, LENGTH, 8, generator=torch.Generator().manual_seed(1))
    kernel = aten._scaled_dot_product_flash_attention_for_cpu

    def program() -> Taps:
        return {"out": kernel(q, q, q, 0.0, mask == "causal", attn_mask=added)[0] * 2}

    assert plumbline.compare(program, None, server, capture="outputs").verdict == "TYPE_I"
    with cuda_attention.instead_of_the_cpu_s(), wrong("scale", 1.01):
        verdict = plumbline.compare(program, None, server, capture="outputs")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
