"""Bugs that change something between two steps: an evaluation, a checkpoint, a callback. Their twins do it well."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from run import BUG, Training, between, data
from torch import Tensor, nn


class Net(nn.Module):
    """An MLP with a batch norm, a table of frequencies, and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.register_buffer("frequencies", 1.0 / torch.linspace(1.0, 3.0, 16))
        self.register_buffer("kept", (torch.arange(16) % 5 != 4).float())

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.sin(self.norm(self.first(x)) * self.frequencies) * self.kept)


class Plain:
    """The usual loop over `Net`."""

    def __init__(self, optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW, **options: float) -> None:
        self.net = Net()
        self.optimizer = optimizer(self.net.parameters(), lr=1e-2, **options)

    def step(self) -> None:
        self.optimizer.zero_grad()
        F.mse_loss(self.net(data(32, 8)), data(32, 4)).backward()
        self.optimizer.step()

    def training(self, event, **state: object) -> Training:
        return Training(self.net, self.optimizer, self.step, dict(state), event)


@between("param:first")
def saved_in_half_precision(form: str) -> Training:
    """A checkpoint is written in bf16: the bug casts the model itself, there and back."""
    run = Plain()

    def save() -> None:
        if form == BUG:
            run.net.bfloat16().float()
        else:
            copy.deepcopy(run.net).bfloat16()

    return run.training(save)


@between("state:first.weight.exp_avg\\b")
def momentum_lost_at_a_restart(form: str) -> Training:
    run = Plain()

    def restart() -> None:
        kept = copy.deepcopy(run.optimizer.state_dict())
        if form == BUG:
            for state in kept["state"].values():
                state["exp_avg"].zero_()
        run.optimizer.load_state_dict(kept)

    return run.training(restart)


@between(r"state:first.weight.exp_avg_sq\b")
def an_older_second_moment(form: str) -> Training:
    """The checkpoint that is loaded is the one before the last."""
    run, older = Plain(), []

    def step() -> None:
        run.step()
        older.append([state["exp_avg_sq"].clone() for state in run.optimizer.state.values()])

    def restart() -> None:
        held = older[-2 if form == BUG else -1]
        for state, old in zip(run.optimizer.state.values(), held, strict=True):
            state["exp_avg_sq"].copy_(old)

    return Training(run.net, run.optimizer, step, event=restart)


@between(r"state:first.weight.step\b")
def steps_counted_anew(form: str) -> Training:
    """Bias correction begins again after a restart."""
    run = Plain()

    def restart() -> None:
        for state in run.optimizer.state.values():
            state["step"] = torch.tensor(0.0 if form == BUG else float(state["step"]))

    return run.training(restart)


@between("state:first.weight.momentum_buffer")
def momentum_scaled_with_the_rate(form: str) -> Training:
    """A schedule lowers the rate; the bug scales the velocity with it, which does not contain the rate."""
    run = Plain(torch.optim.SGD, momentum=0.9)

    def schedule() -> None:
        for group in run.optimizer.param_groups:
            group["lr"] *= 0.5
            for parameter in group["params"]:
                if form == BUG:
                    run.optimizer.state[parameter]["momentum_buffer"].mul_(0.5)

    return run.training(schedule)


@between("buffer:frequencies")
def a_table_through_half_precision(form: str) -> Training:
    """As `model.half()` for an evaluation does to the frequencies of a rotary embedding."""
    run = Plain()

    def evaluate() -> None:
        table = run.net.frequencies
        halved = table.half()
        if form == BUG:
            run.net.frequencies = halved.float()
        assert halved.dtype == torch.float16

    return run.training(evaluate)


@between("buffer:norm")
def evaluated_in_training_mode(form: str) -> Training:
    run = Plain()

    @torch.no_grad()
    def evaluate() -> None:
        run.net.train(form == BUG)
        run.net(torch.ones(16, 8))
        run.net.train()

    return run.training(evaluate)


@between("buffer:norm.running_var")
def statistics_recalibrated(form: str) -> Training:
    """Statistics are measured again for a copy that is exported; the bug shares its buffers."""
    run = Plain()

    @torch.no_grad()
    def export() -> None:
        exported = copy.copy(run.net.norm) if form == BUG else copy.deepcopy(run.net.norm)
        exported.running_var.copy_(torch.linspace(1, 2, 16))

    return run.training(export)


@between("buffer:norm.num_batches_tracked")
def batches_counted_anew(form: str) -> Training:
    run = Plain()

    def report() -> None:
        seen = run.net.norm.num_batches_tracked
        (seen if form == BUG else seen.clone()).zero_()

    return run.training(report)


@between("buffer:kept")
def a_mask_shortened_by_an_evaluation(form: str) -> Training:
    run = Plain()

    @torch.no_grad()
    def evaluate() -> None:
        mask = run.net.kept if form == BUG else run.net.kept.clone()
        mask[12:] = 0

    return run.training(evaluate)


@between("param:first")
def averages_left_in_place(form: str) -> Training:
    """Averaged weights are put in for an evaluation; the bug does not put the trained ones back."""
    run = Plain()
    average = copy.deepcopy(run.net)

    def step() -> None:
        run.step()
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), run.net.parameters(), strict=True):
                mean.lerp_(weight, 0.1)

    def evaluate() -> None:
        trained = copy.deepcopy(run.net.state_dict())
        run.net.load_state_dict(average.state_dict())
        if form != BUG:
            run.net.load_state_dict(trained)

    return Training(run.net, run.optimizer, step, {"ema": average}, evaluate)


@between("state:ema.first.weight")
def averages_overwritten(form: str) -> Training:
    """The exchange of weights for an evaluation goes through one set of tensors too few."""
    run = Plain()
    average = copy.deepcopy(run.net)

    def step() -> None:
        run.step()
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), run.net.parameters(), strict=True):
                mean.lerp_(weight, 0.1)

    @torch.no_grad()
    def evaluate() -> None:
        held = average.first.weight if form == BUG else average.first.weight.clone()
        held.copy_(run.net.first.weight)

    return Training(run.net, run.optimizer, step, {"ema": average}, evaluate)


@between("state:target.first.weight")
def a_target_network_moved_by_a_callback(form: str) -> Training:
    """A target network of reinforcement learning, which only its own schedule may move."""
    run = Plain()
    target = copy.deepcopy(run.net)

    def step() -> None:
        run.optimizer.zero_grad()
        x = data(32, 8)
        with torch.no_grad():
            aim = target(x)
        F.mse_loss(run.net(x), 0.9 * aim + data(32, 4)).backward()
        run.optimizer.step()

    @torch.no_grad()
    def callback() -> None:
        if form == BUG:
            target.first.weight.lerp_(run.net.first.weight, 0.01)

    return Training(run.net, run.optimizer, step, {"target": target}, callback)


@between("param:first.weight")
def an_adapter_merged_and_unmerged(form: str) -> Training:
    """A low-rank adapter is added to a weight for an evaluation and subtracted again: the sum has been rounded."""
    run = Plain()
    low, up = torch.randn(2, 8), torch.randn(16, 2)

    @torch.no_grad()
    def evaluate() -> None:
        weight = run.net.first.weight
        kept = weight.clone()
        weight += up @ low
        if form == BUG:
            weight -= up @ low
        else:
            weight.copy_(kept)

    return run.training(evaluate)


@between("param:last.weight")
def weights_clipped_by_a_callback(form: str) -> Training:
    run = Plain()

    @torch.no_grad()
    def callback() -> None:
        limit = 0.1 if form == BUG else 10.0
        run.net.last.weight.clamp_(-limit, limit)

    return run.training(callback)


@between("param:first")
def a_layer_initialised_again(form: str) -> Training:
    """Building a second model of the same kind initialises the layers that it shares with the first."""
    run = Plain()

    def build_another() -> None:
        shared = run.net.first if form == BUG else nn.Linear(8, 16)
        generator = torch.random.get_rng_state()
        shared.reset_parameters()
        torch.random.set_rng_state(generator)

    return run.training(build_another)


@between("buffer:lowest")
def an_observer_that_saw_the_evaluation(form: str) -> Training:
    """The range of a quantiser goes on being widened while the model is evaluated."""

    class Observed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("lowest", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if self.training or form == BUG:
                self.lowest.copy_(torch.minimum(self.lowest, x.detach().min()))
            return super().forward(x.clamp(min=self.lowest))

    run = Plain()
    run.net = Observed()
    run.optimizer = torch.optim.AdamW(run.net.parameters(), lr=1e-2)

    @torch.no_grad()
    def evaluate() -> None:
        run.net.eval()(torch.full((4, 8), -50.0))
        run.net.train()

    return run.training(evaluate)


@between("buffer:kept")
def a_pruning_mask_drawn_anew(form: str) -> Training:
    run = Plain()

    @torch.no_grad()
    def callback() -> None:
        if form == BUG:
            run.net.kept.copy_(1 - run.net.kept)

    return run.training(callback)


@between("state:slow.0")
def slow_weights_lost(form: str) -> Training:
    """Lookahead keeps slow weights beside the fast ones; a checkpoint that leaves them out starts them at the fast."""
    run = Plain(torch.optim.SGD)
    slow = [parameter.detach().clone() for parameter in run.net.parameters()]

    def step() -> None:
        run.step()
        with torch.no_grad():
            for kept, fast in zip(slow, run.net.parameters(), strict=True):
                kept.lerp_(fast, 0.5)
                fast.copy_(kept)
                fast += 0.01 * fast.sign()

    @torch.no_grad()
    def restart() -> None:
        for kept, fast in zip(slow, run.net.parameters(), strict=True):
            kept.copy_(fast if form == BUG else kept.clone())

    return Training(run.net, run.optimizer, step, {"slow": slow}, restart)


@between(r"state:first.weight.sum\b")
def accumulators_in_half_precision(form: str) -> Training:
    """Adagrad's sums are kept in bf16 by a checkpoint that saves room."""
    run = Plain(torch.optim.Adagrad)

    def restart() -> None:
        kept = copy.deepcopy(run.optimizer.state_dict())
        for state in kept["state"].values():
            stored = state["sum"].bfloat16() if form == BUG else state["sum"].double()
            state["sum"] = stored.float()
        run.optimizer.load_state_dict(kept)

    return run.training(restart)
