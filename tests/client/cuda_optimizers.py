"""Fused optimizer steps as CUDA computes them (ATen: native/cuda/fused_adam_utils.cuh), with kernels for the CPU:
numbers are cast to fp32 first, products are contracted into sums."""

from typing import Any

import torch
from cuda_kernels import fault
from torch import Tensor


def _single(x: float | Tensor) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float32)


def _fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a.double() * b.double() + c.double()).float()


def _adam(decoupled: bool) -> Any:
    def kernel(
        self: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        max_exp_avg_sqs: list[Tensor],
        state_steps: list[Tensor],
        *,
        lr: float | Tensor,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> None:
        assert grad_scale is None and found_inf is None and not amsgrad and not maximize
        rate, b1, b2 = _single(lr), _single(beta1), _single(beta2 + fault.get("beta2", 0))
        decay = _single(weight_decay)
        for of_parameter in zip(self, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True):
            parameter, g, m, v = (tensor.float() for tensor in of_parameter[:4])
            corrections = [1 - beta ** of_parameter[4] for beta in (b1, b2)]
            if decoupled:
                parameter = _fma(-rate * decay, parameter, parameter)
            else:
                g = _fma(decay, parameter, g)
            m = _fma(b1, m, _fma(-b1, g, g))
            square = g * g
            v = _fma(b2, v, _fma(-b2, square, square))
            denominator = v.sqrt() / corrections[1].sqrt() + _single(eps)
            parameter = parameter - rate / corrections[0] * m / denominator
            for held, value in zip(of_parameter[:1] + of_parameter[2:4], (parameter, m, v), strict=True):
                held.copy_(value)

    return kernel


def _sgd(
    self: list[Tensor],
    grads: list[Tensor],
    momentum_buffer_list: list[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: float | Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    assert grad_scale is None and found_inf is None and not maximize and momentum != 0
    rate, factor, damped = _single(lr), _single(momentum), 1 - _single(dampening + fault.get("dampening", 0))
    for parameter, gradient, buffer in zip(self, grads, momentum_buffer_list, strict=True):
        g = _fma(_single(weight_decay), parameter, gradient)
        kept = g if is_first_step else _fma(factor, buffer, damped * g)
        buffer.copy_(kept)
        parameter.copy_(_fma(-rate, _fma(factor, kept, g) if nesterov else kept, parameter))


KERNELS = {"_fused_adam_": _adam(False), "_fused_adamw_": _adam(True), "_fused_sgd_": _sgd}
