"""Weights and statistics that a step averages: EMA, SWA, target networks, batch norms. Paired with PyTorch's own."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from run import BUG, FIXED, REFERENCE, Training, data, within
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

DECAY = 0.9


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))


def averaged(form: str, after, library) -> Training:
    """Training of a net beside an average of it, which `after` (or `library`, in the reference) moves."""
    net = Net()
    average = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    move = library(net, average) if form == REFERENCE else lambda: after(net, average)

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(net(data(32, 8)), data(32, 4)).backward()
        optimizer.step()
        with torch.no_grad():
            move()

    return Training(net, optimizer, step, {"average": average})


def pairs(net: nn.Module, average: nn.Module):
    return zip(net.parameters(), average.parameters(), strict=True)


def exponential(net: nn.Module, average: nn.Module):
    """PyTorch's average of that kind, which moves all of it at once."""
    combine = get_ema_multi_avg_fn(DECAY)
    return lambda: combine(list(average.parameters()), list(net.parameters()), 1)


@within(r"mean\.mul_")
def decay_and_its_complement(form: str) -> Training:
    """The average keeps a tenth of itself where it should keep nine."""

    def after(net: nn.Module, average: nn.Module) -> None:
        keep = 1 - DECAY if form == BUG else DECAY
        for weight, mean in pairs(net, average):
            mean.mul_(keep).add_(weight, alpha=1 - keep)

    return averaged(form, after, exponential)


@within(r"mean\.mul_")
def decay_of_another_run(form: str) -> Training:
    def after(net: nn.Module, average: nn.Module) -> None:
        keep = 0.9001 if form == BUG else DECAY
        for weight, mean in pairs(net, average):
            mean.mul_(keep).add_(weight, alpha=1 - keep)

    return averaged(form, after, exponential)


@within(r"native_batch_norm.* 1$|num_batches_tracked.* 1$", "STRUCTURE")
def statistics_left_out(form: str) -> Training:
    """The averaged model's running statistics are to be those of the model; the bug moves parameters alone."""

    def after(net: nn.Module, average: nn.Module) -> None:
        for weight, mean in pairs(net, average):
            mean.lerp_(weight, 1 - DECAY)
        if form != BUG:
            for held, mean in zip(net.buffers(), average.buffers(), strict=True):
                mean.copy_(held)

    def library(net: nn.Module, average: nn.Module):
        move = exponential(net, average)

        def both() -> None:
            move()
            average[1].load_state_dict(average[1].state_dict() | dict(net[1].named_buffers()))

        return both

    return averaged(form, after, library)


@within(r"mean \+=|seen", since=1)
def one_step_counted_twice(form: str) -> Training:
    """A running mean of weights, as stochastic weight averaging keeps it, whose count starts at one too many."""

    seen = 0

    def after(net: nn.Module, average: nn.Module) -> None:
        nonlocal seen
        count = seen + 2 if form == BUG else seen + 1
        for weight, mean in pairs(net, average):
            mean += (weight - mean) / (1 if seen == 0 else count)
        for held, mean in zip(net.buffers(), average.buffers(), strict=True):
            mean.copy_(held)
        seen += 1

    def library(net: nn.Module, average: nn.Module):
        counted = AveragedModel(net)
        counted.module = average
        return lambda: counted.update_parameters(net)

    return averaged(form, after, library)


@within(r"mean\.")
def the_average_of_old_weights(form: str) -> Training:
    """The average is taken before the optimizer has stepped."""
    net = Net()
    average = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    @torch.no_grad()
    def move() -> None:
        for weight, mean in pairs(net, average):
            if form == REFERENCE:
                mean.copy_(DECAY * mean + (1 - DECAY) * weight)
            else:
                mean.lerp_(weight, 1 - DECAY)

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(net(data(32, 8)), data(32, 4)).backward()
        if form == BUG:
            move()
        optimizer.step()
        if form != BUG:
            move()

    return Training(net, optimizer, step, {"average": average})


class Normalised(nn.Module):
    """A batch norm by its formulas."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))
        self.register_buffer("running_mean", torch.zeros(16))
        self.register_buffer("running_var", torch.ones(16))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        self.bug = bug

    def forward(self, x: Tensor) -> Tensor:
        mean, var = x.mean(0), x.var(0, correction=0)
        with torch.no_grad():
            unbiased = var if self.bug == "biased" else var * (len(x) / (len(x) - 1))
            share = 0.9 if self.bug == "momentum" else 0.1
            self.running_mean.mul_(1 - share).add_(mean, alpha=share)
            self.running_var.mul_(1 - share).add_(unbiased, alpha=share)
            self.num_batches_tracked += 1
        return (x - mean) * torch.rsqrt(var + 1e-5) * self.weight + self.bias


def normalised(form: str, bug: str) -> Training:
    net = Net()
    if form != REFERENCE:
        net[1] = Normalised(bug if form == BUG else "")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(net(data(32, 8)), data(32, 4)).backward()
        optimizer.step()

    return Training(net, optimizer, step)


@within(r"running_var|native_batch_norm")
def a_biased_running_variance(form: str) -> Training:
    return normalised(form, "biased")


@within(r"running_mean|running_var")
def the_other_meaning_of_momentum(form: str) -> Training:
    """PyTorch's momentum is the share of what is new; other frameworks' is the share of what is kept."""
    return normalised(form, "momentum")


@within(r"target|lerp")
def target_network_moved_the_other_way(form: str) -> Training:
    """A critic's target is moved towards the critic, not the critic towards its target."""
    critic = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    target = copy.deepcopy(critic)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)

    def step() -> None:
        state, following, reward = data(32, 8), data(32, 8), data(32, 1)
        optimizer.zero_grad()
        with torch.no_grad():
            aim = reward + 0.9 * target(following)
        F.mse_loss(critic(state), aim).backward()
        optimizer.step()
        with torch.no_grad():
            if form == REFERENCE:
                torch._foreach_lerp_(list(target.parameters()), list(critic.parameters()), 0.05)
            for weight, held in pairs(critic, target):
                if form == FIXED:
                    held.copy_(0.95 * held + 0.05 * weight)
                elif form == BUG:
                    held.copy_(0.05 * held + 0.95 * weight)  # The target.

    return Training(critic, optimizer, step, {"target": target})
