"""Operations with kernels of their own, as libraries register them: written in numpy, out of sight of any capture. Each
can be made wrong."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

fault: dict[str, float] = {}  # By operation: what its result is multiplied with.


@contextlib.contextmanager
def wrong(operation: str, factor: float) -> Iterator[None]:
    fault[operation] = factor
    try:
        yield
    finally:
        fault.clear()


def array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().numpy()


def tensor(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like.dtype)


def normalised(x: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    root = 1 / np.sqrt((x * x).mean(-1, keepdims=True, dtype=np.float32) + np.float32(eps))
    return x * root, root


@torch.library.custom_op("ownlib::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    shifted = np.float32(fault.get("rms_norm", 1)) * array(weight)
    return tensor(normalised(array(x), eps)[0] * (1 + shifted if "forgets one" not in fault else shifted), x)


@rms_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("ownlib::rms_norm_backward", mutates_args=())
def rms_norm_backward(gradient: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    normal, root = normalised(array(x), eps)
    g = array(gradient)
    inner = g * (1 + array(weight))
    of_x = root * (inner - normal * (inner * normal).mean(-1, keepdims=True, dtype=np.float32))
    of_weight = (g * normal).reshape(-1, x.shape[-1]).sum(0)
    return tensor(of_x * np.float32(fault.get("rms_norm_backward", 1)), x), tensor(of_weight, weight)


@rms_norm_backward.register_fake
def _(gradient: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


def _setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.eps = inputs[2]


def _backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
    return *torch.ops.ownlib.rms_norm_backward(gradient, *ctx.saved_tensors, ctx.eps), None


rms_norm.register_autograd(_backward, setup_context=_setup)


def rms_norm_formula(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * (1 + weight.float())).to(x.dtype)


def rms_norm_backward_formula(gradient: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, ...]:
    with torch.enable_grad():
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        return torch.autograd.grad(rms_norm_formula(x, weight, eps), (x, weight), gradient)


# Its backward is written in PyTorch.
@torch.library.custom_op("ownlib::softcap", mutates_args=())
def softcap(x: Tensor, cap: float) -> Tensor:
    return tensor(np.float32(cap) * np.tanh(array(x) / np.float32(cap)) * np.float32(fault.get("softcap", 1)), x)


@softcap.register_fake
def _(x: Tensor, cap: float) -> Tensor:
    return torch.empty_like(x)


def _softcap_setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(output)
    ctx.cap = inputs[1]


def _softcap_backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
    (y,) = ctx.saved_tensors
    return gradient * (1 - (y / ctx.cap).square()), None


softcap.register_autograd(_softcap_backward, setup_context=_softcap_setup)


def softcap_formula(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap)


# Writes its arguments and returns nothing, as inference kernels do.
@torch.library.custom_op("ownlib::add_rms_norm_", mutates_args=("x", "residual"))
def add_rms_norm_(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float = 1e-6) -> None:
    total = array(x) + array(residual)
    residual.copy_(tensor(total, x))
    factor = np.float32(fault.get("add_rms_norm_", 1))
    x.copy_(tensor(normalised(total, eps)[0] * (1 + array(weight)) * factor, x))


def add_rms_norm_formula(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    total = x + residual
    return rms_norm_formula(total, weight, eps), total


@torch.library.custom_op("ownlib::split_norm", mutates_args=())
def split_norm(parts: list[Tensor], weight: Tensor | None = None) -> list[Tensor]:
    factor = np.float32(fault.get("split_norm", 1))
    scale = 1 if weight is None else array(weight)
    return [tensor(normalised(array(part), 1e-6)[0] * scale * factor, part) for part in parts]


def split_norm_formula(parts: list[Tensor], weight: Tensor | None) -> list[Tensor]:
    normal = [part * torch.rsqrt(part.square().mean(-1, keepdim=True) + 1e-6) for part in parts]
    return normal if weight is None else [part * weight for part in normal]
