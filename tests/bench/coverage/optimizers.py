"""The optimizers of the coverage report."""

from collections.abc import Callable, Iterable

import torch
from torch import nn


class Lion(torch.optim.Optimizer):
    """A user's own optimizer: the sign of an interpolated momentum (Chen et al., 2023)."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 1e-3, weight_decay: float = 0.1) -> None:
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.99), "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                momentum = state["momentum"]
                direction = torch.sign(momentum * beta1 + p.grad * (1 - beta1))
                p.mul_(1 - lr * group["weight_decay"]).add_(direction, alpha=-lr)
                momentum.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def sgd(parameters: Iterable[nn.Parameter], foreach: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=1e-4, foreach=foreach)


def adam(parameters: Iterable[nn.Parameter], foreach: bool) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, 1e-3, foreach=foreach)


def adamw(parameters: Iterable[nn.Parameter], foreach: bool) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 1e-3, weight_decay=0.1, foreach=foreach)


def fused_adamw(parameters: Iterable[nn.Parameter], foreach: bool) -> torch.optim.Optimizer:
    """Its learning rate is a tensor, as capturable forms need it; the other form has one kernel a parameter."""
    return torch.optim.AdamW(parameters, torch.tensor(1e-3), foreach=False, fused=foreach)


def rmsprop(parameters: Iterable[nn.Parameter], foreach: bool) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, 1e-3, momentum=0.9, foreach=foreach)


def adagrad(parameters: Iterable[nn.Parameter], foreach: bool) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, 1e-2, foreach=foreach)


def adafactor(parameters: Iterable[nn.Parameter], foreach: bool) -> torch.optim.Optimizer:
    return torch.optim.Adafactor(parameters, 1e-2, foreach=foreach)


def lion(parameters: Iterable[nn.Parameter], foreach: bool) -> torch.optim.Optimizer:
    return Lion(parameters)
