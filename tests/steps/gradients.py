"""What happens to gradients before they are used: accumulated, clipped, unscaled, cut, taken elsewhere."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from run import BUG, FIXED, REFERENCE, Training, data, within
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def stepping(step_of, rate: float = 0.1) -> Training:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    return Training(model, optimizer, lambda: step_of(model, optimizer))


@within(r"part|loss|mse_loss|backward")
def micro_batches_not_averaged(form: str) -> Training:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        x, y = data(32, 8), data(32, 4)
        optimizer.zero_grad()
        if form == REFERENCE:
            F.mse_loss(model(x), y).backward()
        else:
            parts = 4
            for mine, aim in zip(x.chunk(parts), y.chunk(parts), strict=True):
                part = F.mse_loss(model(mine), aim)
                (part if form == BUG else part / parts).backward()
        optimizer.step()

    return stepping(step)


@within(r"backward", since=1)
def gradients_not_cleared(form: str) -> Training:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if form != BUG:
            optimizer.zero_grad(set_to_none=form == REFERENCE)
        F.mse_loss(model(data(32, 8)), data(32, 4)).backward()
        optimizer.step()

    return stepping(step)


def clipped(form: str, clip) -> Training:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        F.mse_loss(model(data(32, 8)), data(32, 4)).backward()
        if form == REFERENCE:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        else:
            clip(model, optimizer)

    return stepping(step)


@within(r"norm|factor|mul_")
def each_parameter_clipped_alone(form: str) -> Training:
    @torch.no_grad()
    def clip(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        gradients = [parameter.grad for parameter in model.parameters()]
        total = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        for gradient in gradients:
            norm = gradient.norm() if form == BUG else total
            gradient.mul_((0.1 / (norm + 1e-6)).clamp(max=1.0))
        optimizer.step()

    return clipped(form, clip)


@within(r"step|clip_grad_norm_|mul_|add_")
def clipped_after_the_step(form: str) -> Training:
    def clip(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if form == BUG:
            optimizer.step()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=False)
        if form == FIXED:
            optimizer.step()

    return clipped(form, clip)


@within(r"clip_grad_norm_|grad|loss \* scale")
def clipped_before_unscaling(form: str) -> Training:
    """A loss that was scaled for half precision: its gradients are clipped as if they had not been. They are judged as
    clipping takes them, still scaled here: the programs part at the scale."""
    scale = 1024.0

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        loss = F.mse_loss(model(data(32, 8)), data(32, 4))
        if form == REFERENCE:
            loss.backward(torch.tensor(scale))
        else:
            (loss * scale).backward()
        if form == BUG:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        for parameter in model.parameters():
            if form == REFERENCE:
                parameter.grad *= 1 / scale
            else:
                parameter.grad /= scale
        if form != BUG:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=form == FIXED)
        optimizer.step()

    return stepping(step)


@within(r"rho|norm|add_|weight")
def sharpness_radius_squared(form: str) -> Training:
    """Sharpness-aware minimisation climbs by a radius along the gradient's direction; the bug divides by the norm's
    square."""
    radius = 0.05

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        x, y = data(32, 8), data(32, 4)
        weights = list(model.parameters())
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        kept = [weight.detach().clone() for weight in weights]
        with torch.no_grad():
            norm = torch.stack([weight.grad.norm() for weight in weights]).norm()
            if form == REFERENCE:
                norm = torch.cat([weight.grad.flatten() for weight in weights]).norm()
            if form == BUG:
                norm = norm * norm
            for weight in weights:
                weight += weight.grad * (radius / norm)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for weight, old in zip(weights, kept, strict=True):
                weight.copy_(old)
        optimizer.step()

    return stepping(step)


@within(r"weight|optimizer|add_|leaf|momentum")
def sharpness_without_the_way_back(form: str) -> Training:
    """The climb is subtracted again only in the twin."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        x, y = data(32, 8), data(32, 4)
        weights = list(model.parameters())
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        kept = [weight.detach().clone() for weight in weights]
        with torch.no_grad():
            climbs = [weight.grad * 0.05 for weight in weights]
            for weight, climb in zip(weights, climbs, strict=True):
                weight += climb
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        for weight, climb, old in zip(weights, climbs, kept, strict=True):
            if form == REFERENCE:
                weight.data = old
            elif form == FIXED:
                with torch.no_grad():
                    weight -= climb
        optimizer.step()

    return stepping(step)


@within(r"backward|two")
def a_branch_cut_off(form: str) -> Training:
    """A second head, whose gradient does not reach the body."""

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = torch.tanh(self.body(x))
            second = hidden.detach() if form == BUG else hidden
            if form == REFERENCE:
                return F.linear(hidden, self.one.weight, self.one.bias), self.two(hidden)
            return self.one(hidden), self.two(second)

    model = Heads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        one, two = model(data(32, 8))
        (F.mse_loss(one, data(32, 4)) + F.mse_loss(two, data(32, 4))).backward()
        optimizer.step()

    return Training(model, optimizer, step)


@within(r"bernoulli_")
def another_dropout_when_recomputed(form: str) -> Training:
    """A checkpointed block whose recomputation draws another mask."""

    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

        def block(self, x: Tensor) -> Tensor:
            return F.dropout(torch.tanh(self.first(x)), 0.5)

        def forward(self, x: Tensor) -> Tensor:
            if form == REFERENCE:
                return self.last(self.block(x))
            return self.last(checkpoint(self.block, x, use_reentrant=False, preserve_rng_state=form == FIXED))

    model = Dropped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        x, y = data(32, 8).requires_grad_(), data(32, 4)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()

    return Training(model, optimizer, step)


@within(r"penalty|grad|norm")
def a_penalty_of_the_wrong_norm(form: str) -> Training:
    """WGAN's gradient penalty: the norm of each sample's gradient, not of the batch's."""
    critic = nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)

    def step() -> None:
        real, fake, share = data(16, 8), data(16, 8), torch.rand(16, 1)
        between = (share * real + (1 - share) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        if form == REFERENCE:
            norm = slope.square().sum(1).sqrt()
        else:
            norm = slope.norm(dim=0) if form == BUG else slope.norm(dim=1)
        penalty = (norm - 1).square().mean()
        optimizer.zero_grad()
        (critic(fake).mean() - critic(real).mean() + 10 * penalty).backward()
        optimizer.step()

    return Training(critic, optimizer, step)
