"""Functions of torch and of torch.nn.functional, as compositions of the primitive operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from flint import arb

from . import ops
from .ops import add, div, mul, permute, power, reshape, sub, total
from .tensor import Tensor, is_float, lift, objects, zeros


def _count(x: Tensor, dim: Any) -> int:
    out = 1
    for axis in ops.axes(x, dim):
        out *= x.shape[axis]
    return out


def _whole(x: Tensor, divisor: int) -> Tensor:
    """Divided by a count: a whole number, which no format rounds."""
    return mul(x, Tensor(objects(1 / arb(divisor))))


def sum_(x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return total(x, dim, keepdim)


def mean(x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return _whole(total(x, dim, keepdim), _count(x, dim))


def var(x: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None) -> Tensor:
    less = int(unbiased) if correction is None else correction
    centred = sub(x, mean(x, dim, True))
    return _whole(total(mul(centred, centred), dim, keepdim), _count(x, dim) - less)


def std(x: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None) -> Tensor:
    return ops.sqrt(var(x, dim, unbiased, keepdim, correction))


def var_mean(x: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None) -> Any:
    return var(x, dim, unbiased, keepdim, correction), mean(x, dim, keepdim)


def prod(x: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    out = select(x, dim, 0)
    for i in range(1, x.shape[dim]):
        out = mul(out, select(x, dim, i))
    return unsqueeze(out, dim) if keepdim else out


def cumsum(x: Tensor, dim: int) -> Tensor:
    running, parts = None, []
    for i in range(x.shape[dim]):
        running = select(x, dim, i) if running is None else add(running, select(x, dim, i))
        parts.append(running)
    return stack(parts, dim)


def norm(x: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    if p == 1:
        return total(ops.absolute(x), dim, keepdim)
    squares = total(mul(x, x), dim, keepdim)
    zero = ops.compare(squares, 0, "eq")  # There PyTorch takes no slope.
    return ops.where(zero, squares, ops.sqrt(ops.where(zero, 1, squares)))


def select(x: Tensor, dim: int, index: int) -> Tensor:
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, start + length),)]


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    dim %= x.ndim + 1
    return reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))


def squeeze(x: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))
    dim %= x.ndim
    return reshape(x, x.shape[:dim] + x.shape[dim + 1 :]) if x.shape[dim] == 1 else x


def stack(parts: Any, dim: int = 0) -> Tensor:
    parts = list(parts)
    return ops.cat([unsqueeze(p, dim if dim >= 0 else dim + parts[0].ndim + 1) for p in parts], dim)


def transpose(x: Tensor, a: int, b: int) -> Tensor:
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return permute(x, order)


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    end = end_dim % x.ndim
    return reshape(x, (*x.shape[:start_dim], -1, *x.shape[end + 1 :]))


def split(x: Tensor, size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    n = x.shape[dim]
    sizes = size if isinstance(size, (list, tuple)) else [min(size, n - i) for i in range(0, n, size)]
    starts = np.cumsum([0, *sizes])
    return tuple(narrow(x, dim, int(s), int(k)) for s, k in zip(starts, sizes, strict=False))


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    return split(x, -(-x.shape[dim] // chunks), dim)


def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(select(x, dim, i) for i in range(x.shape[dim]))


def flip(x: Tensor, dims: Any) -> Tensor:
    for d in dims if isinstance(dims, (list, tuple)) else (dims,):
        x = index_select(x, d, Tensor(np.arange(x.shape[d])[::-1].copy()))
    return x


def roll(x: Tensor, shifts: int, dims: int) -> Tensor:
    return index_select(x, dims, Tensor(np.roll(np.arange(x.shape[dims]), shifts)))


def repeat_interleave(x: Tensor, repeats: int, dim: int) -> Tensor:
    return index_select(x, dim, Tensor(np.repeat(np.arange(x.shape[dim]), repeats)))


def repeat(x: Tensor, *times: int) -> Tensor:
    x = reshape(x, (1,) * (len(times) - x.ndim) + tuple(x.shape))
    for d, n in enumerate(times):
        x = ops.cat([x] * n, d)
    return x


def tri(x: Tensor, diagonal: int, lower: bool) -> Tensor:
    shape = np.ones(x.shape[-2:], dtype=bool)
    kept = Tensor(np.broadcast_to(np.tril(shape, diagonal) if lower else np.triu(shape, diagonal), x.shape))
    return ops.where(kept, x, 0) if is_float(x.data) else Tensor(np.where(kept.data, x.data, np.zeros_like(x.data)))


def amax(x: Tensor, dim: Any = None, keepdim: bool = False, largest: bool = True) -> Tensor:
    """Equal maxima share the cotangent."""
    over = ops.axes(x, dim)
    pick = ops.maximum if largest else ops.minimum
    out = x
    for axis in over:
        parts = unbind(out.detach(), axis)
        best = parts[0]
        for part in parts[1:]:
            best = pick(best, part)
        out = unsqueeze(best, axis)
    hits = ops.compare(x, out, "eq")
    counted = Tensor(hits.data.sum(axis=over, keepdims=True).astype(np.int64))
    if not is_float(x.data):
        result = out
    else:
        share = ops.where(hits, Tensor(zeros(x.shape) + arb(1)), 0)
        result = total(mul(x, div(share, counted)), dim, True)
        result.data = out.data
    return result if keepdim else reshape(result, tuple(n for i, n in enumerate(x.shape) if i not in over))


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    index = Tensor(np.take(ops.order_of(x.data, dim, largest), range(k), axis=dim))
    return ops.gather(x, dim, index), index


def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> tuple[Tensor, Tensor]:
    index = Tensor(ops.order_of(x.data, dim, descending))
    return ops.gather(x, dim, index), index


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    if dim is None:
        return Tensor(ops.order_of(x.data.reshape(-1), 0, True)[0:1].reshape(()))
    index = Tensor(np.take(ops.order_of(x.data, dim, True), [0], axis=dim))
    return index if keepdim else squeeze(index, dim)


def max_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None:
        return amax(x)
    if isinstance(dim, Tensor):
        return ops.maximum(x, dim)
    index = argmax(x, dim, True)
    values = ops.gather(x, dim, index)
    return (values, index) if keepdim else (squeeze(values, dim), squeeze(index, dim))


def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    top = _finite(amax(x.detach(), dim, True))
    out = add(ops.log(total(ops.exp(sub(x, top)), dim, True)), top)
    return out if keepdim else reshape(out, tuple(n for i, n in enumerate(x.shape) if i not in ops.axes(x, dim)))


def _finite(x: Tensor) -> Tensor:
    out = x.data.copy()
    for place in np.ndindex(out.shape):
        if not out[place].is_finite():
            out[place] = arb(0)
    return Tensor(out)


def softmax(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    e = ops.exp(sub(x.detach(), _finite(amax(x.detach(), dim, True))))
    p = div(e, total(e, dim, True)).data

    def back(c: np.ndarray) -> np.ndarray:
        return p * (c - np.sum(objects(c * p), axis=dim, keepdims=True))

    return Tensor(p, [(x, back)])


def log_softmax(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    return sub(x, logsumexp(x, dim, True))


def relu(x: Tensor) -> Tensor:
    kept = ops.compare(x, 0, "gt")
    return ops.where(kept, x, 0)


def where(condition: Tensor, a: Any = None, b: Any = None) -> Any:
    if a is None:
        return tuple(Tensor(i) for i in np.nonzero(condition.data))
    return ops.where(condition, a, b)


def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return ops.where(mask, value, x)


def lerp(a: Tensor, b: Tensor, weight: Any) -> Tensor:
    return add(a, mul(sub(b, a), weight))


def linear(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    out = ops.matmul(x, transpose(w, 0, 1))
    return out if b is None else add(out, b)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        inner = mul(add(x, mul(power(x, 3), "0.044715")), (2 / arb.pi()).sqrt())
        return mul(mul(x, 0.5), add(ops.tanh(inner), 1))
    return mul(mul(x, 0.5), add(ops.erf(mul(x, arb(0.5).sqrt())), 1))


def silu(x: Tensor) -> Tensor:
    return mul(x, ops.sigmoid(x))


def softplus(x: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    return div(log1pexp(mul(x, beta)), beta)


def log1pexp(x: Tensor) -> Tensor:
    return add(relu(x), ops.log1p(ops.exp(neg_abs(x))))


def neg_abs(x: Tensor) -> Tensor:
    return ops.neg(ops.absolute(x))


def elu(x: Tensor, alpha: Any = 1.0) -> Tensor:
    return ops.where(ops.compare(x, 0, "gt"), x, mul(ops.expm1(x), alpha))


def leaky_relu(x: Tensor, negative_slope: Any = 0.01) -> Tensor:
    return ops.where(ops.compare(x, 0, "gt"), x, mul(x, negative_slope))


def glu(x: Tensor, dim: int = -1) -> Tensor:
    a, b = chunk(x, 2, dim)
    return mul(a, ops.sigmoid(b))


def _normalized(x: Tensor, dims: Any, eps: Any) -> Tensor:
    centred = sub(x, mean(x, dims, True))
    return mul(centred, ops.rsqrt(add(mean(mul(centred, centred), dims, True), eps)))


def layer_norm(x: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: Any = "1e-5") -> Tensor:
    out = _normalized(x, tuple(range(-len(shape), 0)), eps)
    out = out if weight is None else mul(out, weight)
    return out if bias is None else add(out, bias)


def rms_norm(x: Tensor, shape: Any, weight: Any = None, eps: Any = None) -> Tensor:
    dims = tuple(range(-len(shape), 0))
    eps = arb(2) ** -23 if eps is None else eps
    out = mul(x, ops.rsqrt(add(mean(mul(x, x), dims, True), eps)))
    return out if weight is None else mul(out, weight)


def group_norm(x: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: Any = "1e-5") -> Tensor:
    parts = reshape(x, (x.shape[0], groups, -1))
    return _affine(reshape(_normalized(parts, -1, eps), x.shape), weight, bias)


def _affine(x: Tensor, weight: Any, bias: Any) -> Tensor:
    shape = (1, -1) + (1,) * (x.ndim - 2)
    x = x if weight is None else mul(x, reshape(weight, shape))
    return x if bias is None else add(x, reshape(bias, shape))


def batch_norm(
    x: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: Any = "1e-5",
) -> Tensor:
    if training:
        return _affine(_normalized(x, (0, *range(2, x.ndim)), eps), weight, bias)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    scale = ops.rsqrt(add(reshape(running_var, shape), eps))
    return _affine(mul(sub(x, reshape(running_mean, shape)), scale), weight, bias)


def normalize(x: Tensor, dim: int = 1, eps: Any = "1e-12") -> Tensor:
    return div(x, ops.maximum(norm(x, 2, dim, True), eps))


def reduced(x: Tensor, reduction: str) -> Tensor:
    return mean(x) if reduction == "mean" else total(x) if reduction == "sum" else x


def nll_loss(x: Tensor, target: Tensor, reduction: str = "mean", ignore_index: int = -100) -> Tensor:
    kept = np.nonzero(target.data != ignore_index)[0]
    picked = ops.neg(x[(kept, target.data[kept])])
    return reduced(picked, reduction)


def cross_entropy(
    x: Tensor,
    target: Tensor,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: Any = 0.0,
) -> Tensor:
    log_p = log_softmax(x, -1)
    if not (isinstance(label_smoothing, float) and label_smoothing == 0.0):
        kept = Tensor(np.nonzero(target.data != ignore_index)[0])
        smooth = reduced(ops.neg(mean(log_p, -1))[kept], reduction)
        plain = nll_loss(log_p, target, reduction, ignore_index)
        return add(mul(plain, 1 - label_smoothing), mul(smooth, label_smoothing))
    return nll_loss(log_p, target, reduction, ignore_index)


def mse_loss(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return reduced(power(sub(x, y), 2), reduction)


def l1_loss(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return reduced(ops.absolute(sub(x, y)), reduction)


def huber_loss(x: Tensor, y: Tensor, reduction: str = "mean", delta: Any = 1.0) -> Tensor:
    apart = ops.absolute(sub(x, y))
    near = mul(mul(apart, apart), 0.5)
    far = mul(sub(apart, mul(lift(delta), 0.5)), delta)
    return reduced(ops.where(ops.compare(apart, delta, "lt"), near, far), reduction)


def smooth_l1_loss(x: Tensor, y: Tensor, reduction: str = "mean", beta: Any = 1.0) -> Tensor:
    return div(huber_loss(x, y, reduction, beta), beta)


def binary_cross_entropy_with_logits(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return reduced(sub(log1pexp(x), mul(x, y)), reduction)


def binary_cross_entropy(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    first, second = mul(y, ops.log(x)), mul(sub(1, y), ops.log1p(ops.neg(x)))
    return reduced(ops.neg(add(first, second)), reduction)


def kl_div(x: Tensor, y: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    out = mul(ops.exp(y), sub(y, x)) if log_target else mul(y, sub(ops.log(y), x))
    if reduction == "batchmean":
        return _whole(total(out), x.shape[0])
    return reduced(out, reduction)


def embedding(tokens: Tensor, weight: Tensor) -> Tensor:
    return weight[(tokens,)]


def one_hot(x: Tensor, num_classes: int) -> Tensor:
    return Tensor(np.eye(num_classes, dtype=np.int64)[x.data])


def pad(x: Tensor, sizes: Any, value: Any = 0.0) -> Tensor:
    before, after = sizes
    parts = [full((*x.shape[:-1], n), value) for n in (before, after)]
    return ops.cat([p for p in (parts[0], x, parts[1]) if p.shape[-1]], -1)


def full(shape: Any, value: Any) -> Tensor:
    out = zeros(tuple(shape))
    out[...] = lift(value).data[()]
    return Tensor(out)


def conv1d(x: Tensor, w: Tensor, b: Tensor | None = None, stride: int = 1, padding: int = 0, groups: int = 1) -> Tensor:
    x = pad(x, (padding, padding)) if padding else x
    out_channels, in_group, taps = w.shape
    steps = (x.shape[-1] - taps) // stride + 1
    windows = stack([x[:, :, i * stride : i * stride + taps] for i in range(steps)], 2)
    parts = []
    for g in range(groups):
        rows = windows[:, g * in_group : (g + 1) * in_group]
        rows = reshape(permute(rows, (0, 2, 1, 3)), (x.shape[0], steps, -1))
        kernel = w[g * out_channels // groups : (g + 1) * out_channels // groups]
        parts.append(ops.matmul(rows, transpose(reshape(kernel, (kernel.shape[0], -1)), 0, 1)))
    out = transpose(ops.cat(parts, -1), 1, 2)
    return out if b is None else add(out, reshape(b, (1, -1, 1)))


def _windows(x: Tensor, size: int, stride: int | None) -> Tensor:
    step = stride or size
    count = (x.shape[-1] - size) // step + 1
    return stack([narrow(x, -1, i * step, size) for i in range(count)], x.ndim - 1)


def avg_pool1d(x: Tensor, kernel_size: int, stride: int | None = None) -> Tensor:
    return mean(_windows(x, kernel_size, stride), -1)


def max_pool1d(x: Tensor, kernel_size: int, stride: int | None = None) -> Tensor:
    return max_(_windows(x, kernel_size, stride), -1)[0]


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
) -> Tensor:
    scores = ops.matmul(q, transpose(k, -1, -2))
    scores = mul(scores, 1 / arb(q.shape[-1]).sqrt() if scale is None else scale)
    if is_causal:
        attn_mask = Tensor(np.tril(np.ones(scores.shape[-2:], dtype=bool)))
    if attn_mask is not None:
        masked = attn_mask.dtype == torch.bool
        scores = ops.where(attn_mask, scores, Tensor(objects(arb.neg_inf()))) if masked else add(scores, attn_mask)
    return ops.matmul(softmax(scores, -1), v)


def einsum(equation: str, *operands: Tensor) -> Tensor:
    left, right = equation.replace(" ", "").split("->")
    names = left.split(",")
    letters = sorted(set("".join(names)))
    out = None
    for name, x in zip(names, operands, strict=True):
        order = sorted(range(len(name)), key=lambda i: name[i])
        x = permute(x, order)
        sizes = dict(zip(sorted(name), x.shape, strict=True))
        x = reshape(x, tuple(sizes.get(letter, 1) for letter in letters))
        out = x if out is None else mul(out, x)
    summed = tuple(i for i, letter in enumerate(letters) if letter not in right)
    out = total(out, summed) if summed else out
    kept = [letter for letter in letters if letter in right]
    return permute(out, [kept.index(letter) for letter in right])


def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: Any = "1e-8") -> Tensor:
    bound = lift(eps)
    size = mul(ops.maximum(norm(a, 2, dim, True), bound), ops.maximum(norm(b, 2, dim, True), bound))
    return squeeze(div(total(mul(a, b), dim, True), size), dim)
