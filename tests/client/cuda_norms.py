"""Batch norm by cuDNN, gradients of PyTorch's own, the parts of SyncBatchNorm, RMS norm and dropout, as CUDA builds of
PyTorch dispatch them, with kernels for the CPU. Faults: "eps": forgotten; "biased": of the running variance; "mean":
gradients keep theirs; "scale": of dropout; "count": of the other ranks; "total": of the gradients."""

import torch
from cuda_kernels import fault
from torch import Tensor


def _dims(x: Tensor) -> list[int]:
    return [d for d in range(x.dim()) if d != 1]


def _spread(vector: Tensor, x: Tensor) -> Tensor:
    return vector.float().view(1, -1, *[1] * (x.dim() - 2))


def _moments(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    mean = x.float().mean(_dims(x))
    variance = (x.float() - _spread(mean, x)).square().mean(_dims(x))
    return mean, 1 / (variance + (0 if "eps" in fault else eps)).sqrt()


def _normalised(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor) -> Tensor:
    y = (x.float() - _spread(mean, x)) * _spread(invstd, x)
    y = y if weight is None else y * _spread(weight, x)
    return (y if bias is None else y + _spread(bias, x)).to(x.dtype)


def _batch_norm(x, weight, bias, running_mean, running_var, training, factor, eps):
    reserve = torch.zeros(16, dtype=torch.uint8)
    if not training:
        invstd = 1 / (running_var + (0 if "eps" in fault else eps)).sqrt()
        empty = torch.empty(0)
        return _normalised(x, weight, bias, running_mean, invstd), empty, empty.clone(), reserve[:0]
    mean, invstd = _moments(x, eps)
    n = x.numel() // x.shape[1]
    variance = (x.float() - _spread(mean, x)).square().sum(_dims(x)) / (n if "biased" in fault else n - 1)
    if running_mean is not None:
        running_mean.mul_(1 - factor).add_(mean * factor)
        running_var.mul_(1 - factor).add_(variance * factor)
    return _normalised(x, weight, bias, mean, invstd), mean, invstd, reserve


def _gradients(gradient: Tensor, x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    g = gradient.float()
    return g.sum(_dims(x)), (g * (x.float() - _spread(mean, x))).sum(_dims(x))


def _of_warps(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """The sums of 32 lanes each, which take from another what `dtype` holds of it."""
    for distance in (16, 8, 4, 2, 1):
        parts = parts + parts.roll(-distance, -1).to(dtype).float()
    return parts[..., 0]


def _by_a_block(terms: Tensor, dtype: torch.dtype) -> Tensor:
    """Normalization.cuh, reduce(): terms [samples, channels, positions] by 512 threads a channel."""
    positions = terms.shape[2]
    across = next((n for n in (32, 64, 128, 256) if positions <= n), 512)
    down = max(1, 512 // across)
    of_thread = torch.zeros(terms.shape[1], down, across)
    for sample, rows in enumerate(terms):
        for start in range(0, positions, across):
            part = rows[:, start : start + across]
            of_thread[:, sample % down, : part.shape[1]] += part
    of_warp = _of_warps(of_thread.view(terms.shape[1], -1, 32), dtype)
    return _of_warps(torch.nn.functional.pad(of_warp, (0, 32 - of_warp.shape[1])), dtype)


def _native_backward(gradient, x, weight, running_mean, running_var, mean, invstd, train, eps, mask):
    """Bit by bit what an H100 makes of 16-bit images in rows."""
    g, centred = gradient.flatten(2).float(), x.flatten(2).float() - mean.view(1, -1, 1)
    total = _by_a_block(g, x.dtype) * fault.get("total", 1)
    product = _by_a_block((g * centred).to(x.dtype).float(), x.dtype)
    norm = torch.tensor(1.0) / (x.numel() // x.shape[1])
    slope = product * norm * invstd * invstd
    shift, scale = (total * norm).view(1, -1, 1), (invstd * weight).view(1, -1, 1)
    of_x = ((g - centred * slope.view(1, -1, 1) - shift) * scale).to(x.dtype)
    return of_x.view(x.shape), product * invstd, total


def _of_elements(gradient, x, mean, invstd, weight, total, product, n):
    shift = _spread(total / n, x) * (0 if "mean" in fault else 1)
    slope = _spread(invstd * invstd * product / n, x)
    scale = invstd if weight is None else invstd * weight
    return ((gradient.float() - shift - (x.float() - _spread(mean, x)) * slope) * _spread(scale, x)).to(x.dtype)


def _batch_norm_backward(x, gradient, weight, running_mean, running_var, mean, invstd, eps, reserve):
    total, product = _gradients(gradient, x, mean)
    of_x = _of_elements(gradient, x, mean, invstd, weight, total, product, x.numel() // x.shape[1])
    return of_x, product * invstd, total


def _gather(x, means, invstds, running_mean, running_var, momentum, eps, counts):
    counts = counts * (2 if "count" in fault else 1) if isinstance(counts, Tensor) else [counts] * len(means)
    mean, squares, n = torch.zeros_like(means[0]), torch.zeros_like(means[0]), torch.tensor(0.0)
    for own, invstd, count in zip(means, invstds, counts, strict=True):
        factor = 1 / (n + count)
        deviation = 1 / invstd
        squares += (deviation * deviation - eps) * count + (mean - own).square() * n * count * factor
        mean, n = n * factor * mean + count * factor * own, n + count
    if running_mean is not None:
        running_mean.copy_((1 - momentum) * running_mean + momentum * mean)
        running_var.copy_((1 - momentum) * running_var + momentum * squares / (n - 1))
    return mean, 1 / (squares / n + eps).sqrt()


def _reduce(gradient, x, mean, invstd, weight, input_g, weight_g, bias_g):
    total, product = _gradients(gradient, x, mean)
    return total, product, product * invstd if weight_g else None, total.clone() if bias_g else None


def _backward_elements(gradient, x, mean, invstd, weight, total, product, count):
    return _of_elements(gradient, x, mean, invstd, weight, total, product, count.sum())


def _rms_norm(x, shape, weight=None, eps=None):
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    dims = [-d - 1 for d in range(len(shape))]
    scale = torch.rsqrt(x.float().square().mean(dims, keepdim=True) + (0 if "eps" in fault else eps))
    y = x.float() * scale
    return (y if weight is None else y * weight.float()).to(x.dtype), scale


def _rms_norm_backward(gradient, x, shape, scale, weight, mask):
    dims = [-d - 1 for d in range(len(shape))]
    normal = x.float() * scale
    inner = gradient.float() * (1 if weight is None else weight.float())
    mean = (inner * normal).mean(dims, keepdim=True) * (0 if "mean" in fault else 1)
    of_weight = (gradient.float() * normal).flatten(0, -len(shape) - 1).sum(0).to(x.dtype)
    return (scale * (inner - normal * mean)).to(x.dtype), of_weight if mask[1] else None


def _dropout(x, p, train):
    """The factor is rounded twice, in fp32."""
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = torch.tensor(1 - p, dtype=torch.float32)
    mask = torch.rand(x.shape) < kept
    scale = 1 / kept * fault.get("scale", 1)
    return (x.float() * mask * scale).to(x.dtype), mask


KERNELS = {
    "cudnn_batch_norm": _batch_norm,
    "cudnn_batch_norm_backward": _batch_norm_backward,
    "native_batch_norm_backward": _native_backward,
    "batch_norm_stats": _moments,
    "batch_norm_elemt": lambda x, weight, bias, mean, invstd, eps: _normalised(x, weight, bias, mean, invstd),
    "batch_norm_gather_stats": _gather,
    "batch_norm_gather_stats_with_counts": _gather,
    "batch_norm_backward_reduce": _reduce,
    "batch_norm_backward_elemt": _backward_elements,
    "_fused_rms_norm": _rms_norm,
    "_fused_rms_norm_backward": _rms_norm_backward,
    "native_dropout": _dropout,
}
