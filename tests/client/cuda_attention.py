"""The operations of fused attention that CUDA builds of PyTorch dispatch, with kernels for the CPU that compute as
those on a device do: block by block of keys, with exponentials to the base 2, and probabilities that are rounded to
16-bit inputs' format. Each can be made wrong."""

import contextlib
import math

import torch
from cuda_kernels import fault, on_the_cpu
from torch import Tensor

BLOCK = 32
LOG2E = math.log2(math.e)
# Faults: "scale": what it is multiplied with; "diagonal": by how many keys the mask is off; "late": blocks are not
# rescaled; "inner": the sum of gradient times output is forgotten.


def _scale(q: Tensor, scale: float | None) -> float:
    return (q.shape[-1] ** -0.5 if scale is None else scale) * fault.get("scale", 1)


def _copies(x: Tensor, heads: int) -> Tensor:
    return x.float().repeat_interleave(heads // x.shape[1], 1)


def _scores(q: Tensor, k: Tensor, bias: Tensor | None, shift: int | None, scale: float | None) -> Tensor:
    """Times log2 e."""
    products = q.float() @ _copies(k, q.shape[1]).transpose(-2, -1)
    if bias is None:
        s = products * torch.tensor(_scale(q, scale) * LOG2E, dtype=torch.float32)
    else:
        s = (products * _scale(q, scale) + bias.float()) * torch.tensor(LOG2E, dtype=torch.float32)
    if shift is None:
        return s
    sees = torch.ones(s.shape[-2:], dtype=torch.bool).tril(shift + int(fault.get("diagonal", 0)))
    return s.masked_fill(~sees, -math.inf)


def forward(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, shift: int | None, scale: float | None, infinite: bool
) -> tuple[Tensor, Tensor]:
    s, values = _scores(q, k, bias, shift, scale), _copies(v, q.shape[1])
    largest = torch.full((*s.shape[:-1], 1), -math.inf)
    total, out = torch.zeros_like(largest), torch.zeros(*s.shape[:-1], v.shape[-1])
    for start in range(0, s.shape[-1], BLOCK):
        block = s[..., start : start + BLOCK]
        grown = torch.maximum(largest, block.amax(-1, keepdim=True))
        zero = torch.where(grown == -math.inf, 0.0, grown)
        p, old = torch.exp2(block - zero), torch.exp2(largest - zero)
        if start and "late" in fault:
            old = torch.ones_like(old)
        total = total * old + p.sum(-1, keepdim=True)
        out = out * old + p.to(q.dtype).float() @ values[..., start : start + BLOCK, :]
        largest = grown
    empty = total == 0
    logsumexp = torch.where(largest == -math.inf, 0.0, largest) / LOG2E + torch.where(empty, 1.0, total).log()
    if infinite:
        logsumexp = logsumexp.masked_fill(empty, math.inf)
    return (out * (1 / torch.where(empty, 1.0, total))).to(q.dtype), logsumexp.squeeze(-1)


def backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    bias: Tensor | None,
    shift: int | None,
    scale: float | None,
    early: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """early: probabilities are rounded before their gradient is formed."""
    g, held = gradient.float(), q.dtype
    s = _scores(q, k, bias, shift, scale)
    p = torch.exp2(s - (logsumexp.unsqueeze(-1) * torch.tensor(LOG2E, dtype=torch.float32)))
    narrow = p.to(held).float()
    dv = narrow.transpose(-2, -1) @ g
    inner = (g * out.float()).sum(-1, keepdim=True) * (0 if "inner" in fault else 1)
    ds = (narrow if early else p) * (g @ _copies(v, q.shape[1]).transpose(-2, -1) - inner)
    scaled = ds.to(held).float()
    dq = scaled @ _copies(k, q.shape[1]) * _scale(q, scale)
    dk = scaled.transpose(-2, -1) @ q.float() * _scale(q, scale)

    def grouped(x: Tensor, like: Tensor) -> Tensor:
        """Copies of a head are rounded before they are added."""
        return x.to(held).float().unflatten(1, (like.shape[1], -1)).sum(2).to(held)

    return dq.to(held), grouped(dk, k), grouped(dv, v), ds.to(held)


def _seed() -> Tensor:
    return torch.zeros((), dtype=torch.long)


def _flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    out, logsumexp = forward(q, k, v, None, k.shape[2] - q.shape[2] if is_causal else None, scale, True)
    state, unused = torch.zeros(2, dtype=torch.uint64), torch.zeros((), dtype=torch.uint64)
    return out, logsumexp, None, None, q.shape[2], k.shape[2], state, unused, torch.empty(0, dtype=q.dtype)


def _flash_backward(
    gradient, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None
):
    shift = k.shape[2] - q.shape[2] if is_causal else None
    return backward(gradient, q, k, v, out, logsumexp, None, shift, scale)[:3]


def _padded(logsumexp: Tensor) -> Tensor:
    return torch.nn.functional.pad(logsumexp, (0, -logsumexp.shape[-1] % 32), value=math.inf)


def _efficient(q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    out, logsumexp = forward(q, k, v, attn_bias, 0 if is_causal else None, scale, False)
    logsumexp = _padded(logsumexp) if compute_log_sumexp else logsumexp[..., :0]
    return out, logsumexp, _seed(), _seed()


def _efficient_backward(
    gradient,
    q,
    k,
    v,
    attn_bias,
    out,
    logsumexp,
    seed,
    offset,
    dropout_p,
    grad_input_mask,
    is_causal=False,
    *,
    scale=None,
):
    if gradient is None:
        return None, None, None, None
    rows, shift = logsumexp[..., : q.shape[2]], 0 if is_causal else None
    made = backward(gradient, q, k, v, out, rows, attn_bias, shift, scale, early=True)
    return *made[:3], made[3] if attn_bias is not None and grad_input_mask[3] else None


def _cudnn(
    q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):
    out, logsumexp = forward(q, k, v, attn_bias, 0 if is_causal else None, scale, False)
    return out, logsumexp.unsqueeze(-1), None, None, q.shape[2], k.shape[2], _seed(), _seed(), None


def _cudnn_backward(
    gradient, q, k, v, out, logsumexp, seed, offset, attn_bias, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, *,
    scale=None,
):  # fmt: skip
    rows, shift = logsumexp.squeeze(-1), 0 if is_causal else None
    return backward(gradient, q, k, v, out, rows, attn_bias, shift, scale)[:3]


def _overrideable(
    q, k, v, attn_bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):  # fmt: skip
    out, logsumexp = forward(q, k, v, attn_bias, 0 if is_causal else None, scale, False)
    return out, logsumexp, None, None, q.shape[2], k.shape[2], _seed(), _seed(), None


def _overrideable_backward(
    gradient, q, k, v, attn_bias, grad_input_mask, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout_p, is_causal,
    seed, offset, *, scale=None,
):  # fmt: skip
    return backward(gradient, q, k, v, out, logsumexp, attn_bias, 0 if is_causal else None, scale)


def _heads_first(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


def _efficient_of_lengths(
    q, k, v, bias, cu_q, cu_k, max_q, max_k, dropout_p, custom_mask_type, compute_log_sumexp=False, *, scale=None,
    seqlen_k=None, window_size=None,
):  # fmt: skip
    shift = {0: None, 1: 0, 2: k.shape[1] - q.shape[1]}[custom_mask_type]
    out, logsumexp = forward(*_heads_first(q, k, v), bias, shift, scale, False)
    return out.transpose(1, 2).contiguous(), _padded(logsumexp), _seed(), _seed(), q.shape[1], k.shape[1]


def _flash_of_lengths(
    q, k, v, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *, scale=None, window_size_left=None,
    window_size_right=None, seqused_k=None, alibi_slopes=None, block_table=None, num_splits=None,
):  # fmt: skip
    shift = k.shape[1] - q.shape[1] if is_causal else None
    out, logsumexp = forward(*_heads_first(q, k, v), None, shift, scale, True)
    state = torch.zeros(2, dtype=torch.uint64)
    return out.transpose(1, 2).contiguous(), logsumexp, state, _seed(), torch.empty(0, dtype=q.dtype)


def _flash_of_lengths_backward(
    gradient, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, state, unused, *, scale=None,
    window_size_left=None, window_size_right=None,
):  # fmt: skip
    shift = k.shape[1] - q.shape[1] if is_causal else None
    g, *operands, rows = _heads_first(gradient, q, k, v, out)
    made = backward(g, *operands, rows, logsumexp, None, shift, scale)[:3]
    return tuple(x.transpose(1, 2).contiguous() for x in made)


def _of_the_cpu(q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return forward(q, k, v, attn_mask, 0 if is_causal else None, scale, False)


KERNELS = {
    "_scaled_dot_product_flash_attention": _flash,
    "_scaled_dot_product_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_efficient_attention": _efficient,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "_scaled_dot_product_cudnn_attention": _cudnn,
    "_scaled_dot_product_cudnn_attention_backward": _cudnn_backward,
    "_scaled_dot_product_fused_attention_overrideable": _overrideable,
    "_scaled_dot_product_fused_attention_overrideable_backward": _overrideable_backward,
    "_efficient_attention_forward": _efficient_of_lengths,
    "_flash_attention_forward": _flash_of_lengths,
    "_flash_attention_backward": _flash_of_lengths_backward,
}


def instead_of_the_cpu_s() -> contextlib.AbstractContextManager[None]:
    return on_the_cpu({"_scaled_dot_product_flash_attention_for_cpu": _of_the_cpu})


def registered() -> contextlib.AbstractContextManager[None]:
    return on_the_cpu(KERNELS)
