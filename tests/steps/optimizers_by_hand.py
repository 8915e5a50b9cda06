"""Optimizers that people write themselves, paired with PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from run import BUG, REFERENCE, Training, data, within
from torch import Tensor, nn

RATE, DECAY, MOMENTUM = 1e-2, 0.1, 0.9


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


class ByHand(torch.optim.Optimizer):
    """An optimizer of one formula: `update(weight, gradient, state, number)` moves the weight."""

    def __init__(self, model: nn.Module, update: Callable[[Tensor, Tensor, dict, int], None]) -> None:
        super().__init__(model.parameters(), {})
        self.update = update
        self.number = 0

    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> None:
        self.number += 1
        for weight in self.param_groups[0]["params"]:
            self.update(weight, weight.grad, self.state[weight], self.number)


def training(form: str, library: Callable[[nn.Module], torch.optim.Optimizer], update: Callable) -> Training:
    model = net()
    optimizer = library(model) if form == REFERENCE else ByHand(model, update)

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(data(32, 8)), data(32, 4)).backward()
        optimizer.step()

    return Training(model, optimizer, step)


@within(r"add\.Tensor optimizer.step")
def decay_after_momentum(form: str) -> Training:
    """L2 decay belongs to the gradient, so that the velocity contains it."""

    def update(weight: Tensor, gradient: Tensor, state: dict, number: int) -> None:
        if form != BUG:
            gradient = gradient + DECAY * weight
        velocity = state.get("momentum_buffer")
        state["momentum_buffer"] = gradient.clone() if velocity is None else MOMENTUM * velocity + gradient
        move = state["momentum_buffer"]
        if form == BUG:
            move = move + DECAY * weight
        weight -= RATE * move

    return training(form, lambda m: torch.optim.SGD(m.parameters(), RATE, MOMENTUM, weight_decay=DECAY), update)


@within(r"velocity", since=1)
def momentum_dampened(form: str) -> Training:
    """The velocity as an average of gradients, where PyTorch's is their sum."""

    def update(weight: Tensor, gradient: Tensor, state: dict, number: int) -> None:
        velocity = state.get("momentum_buffer")
        if velocity is None:
            velocity = gradient.clone()
        elif form == BUG:
            velocity = MOMENTUM * velocity + (1 - MOMENTUM) * gradient
        else:
            velocity = MOMENTUM * velocity + gradient
        state["momentum_buffer"] = velocity
        weight -= RATE * velocity

    return training(form, lambda m: torch.optim.SGD(m.parameters(), RATE, MOMENTUM), update)


def adam(form: str, bug: str, library: Callable[[nn.Module], torch.optim.Optimizer], decay: float = 0.0) -> Training:
    """Adam(W) by its formulas, with one of them wrong."""
    first, second, eps = 0.9, 0.999, 1e-8

    def update(weight: Tensor, gradient: Tensor, state: dict, number: int) -> None:
        wrong = bug if form == BUG else ""
        if not state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        if wrong == "decay":
            gradient = gradient + decay * weight
        else:
            weight.mul_(1 - RATE * decay)
        mean = state["exp_avg"].lerp_(gradient, 1 - first)
        square = state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        correction = 1 - second**number
        if wrong == "eps":
            denominator = ((square + eps) / correction).sqrt()
        elif wrong == "squares":
            denominator = square.sqrt() / correction + eps
        else:
            denominator = (square / correction).sqrt() + eps
        rate = RATE if wrong == "bias" else RATE / (1 - first**number)
        weight.addcdiv_(mean, denominator, value=-rate)

    return training(form, library, update)


@within(r"addcdiv_")
def no_bias_correction(form: str) -> Training:
    return adam(form, "bias", lambda m: torch.optim.Adam(m.parameters(), RATE, foreach=False))


@within(r"square \+ eps")
def eps_under_the_root(form: str) -> Training:
    return adam(form, "eps", lambda m: torch.optim.Adam(m.parameters(), RATE, foreach=True))


@within(r"square.sqrt\(\) / correction")
def correction_outside_of_the_root(form: str) -> Training:
    return adam(form, "squares", lambda m: torch.optim.Adam(m.parameters(), RATE, fused=True))


@within(r"decay \* weight|lerp_|addcmul_")
def decay_within_the_moments(form: str) -> Training:
    """Adam with L2 decay where AdamW's was meant."""
    return adam(form, "decay", lambda m: torch.optim.AdamW(m.parameters(), RATE, weight_decay=DECAY), DECAY)


@within(r"weight.sub_|weight -= ")
def rates_of_groups_exchanged(form: str) -> Training:
    rates = (0.1, 0.01)

    def update(weight: Tensor, gradient: Tensor, state: dict, number: int) -> None:
        matrix, vector = reversed(rates) if form == BUG else rates
        weight -= (matrix if weight.dim() == 2 else vector) * gradient

    def library(model: nn.Module) -> torch.optim.Optimizer:
        groups = [[p for p in model.parameters() if p.dim() == dims] for dims in (2, 1)]
        return torch.optim.SGD([{"params": g, "lr": rate} for g, rate in zip(groups, rates, strict=True)])

    return training(form, library, update)


@within(r"weight \*= ")
def decay_of_biases(form: str) -> Training:
    """Biases are not to decay."""

    def update(weight: Tensor, gradient: Tensor, state: dict, number: int) -> None:
        if form == BUG or weight.dim() == 2:
            weight *= 1 - RATE * DECAY
        weight -= RATE * torch.sign(gradient)

    class Signs(torch.optim.Optimizer):
        """Sign descent, all matrices and then all vectors."""

        @torch.no_grad()
        def step(self, closure: Callable | None = None) -> None:
            for group in self.param_groups:
                for weight in group["params"]:
                    decayed = weight - weight * (RATE * group["decay"])
                    weight.copy_(decayed.add(weight.grad.sign(), alpha=-RATE))

    def library(model: nn.Module) -> torch.optim.Optimizer:
        groups = [[p for p in model.parameters() if p.dim() == dims] for dims in (2, 1)]
        return Signs([{"params": g, "decay": d} for g, d in zip(groups, (DECAY, 0.0), strict=True)], {})

    return training(form, library, update)
