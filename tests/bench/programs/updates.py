"""Updates of other kinds: factored curvature, projections, trust ratios, anchors, schedules without end, privacy."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .generative import mlp
from .optimizers import regression
from .training import Cast, Training, program, trained


class Written(torch.optim.Optimizer):
    """One whose update is a function of weight, gradient and state."""

    def __init__(self, parameters: Any, update: Callable[[torch.Tensor, torch.Tensor, dict], None]) -> None:
        super().__init__(parameters, {})
        self.update = update

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                self.update(p, p.grad, self.state[p])


def written(cast: Cast, update: Callable[[torch.Tensor, torch.Tensor, dict], None]) -> Training:
    model, loss = regression()
    return trained(model, Written(model.parameters(), update), loss, cast)


@program(bf16=False)
def shampoo(cast: Cast) -> Training:
    """Preconditioned by roots of both sides' curvature."""

    def root(of: torch.Tensor) -> torch.Tensor:
        values, vectors = torch.linalg.eigh(of + 1e-4 * torch.eye(len(of)))
        return vectors * values.clamp(min=1e-6) ** -0.25 @ vectors.T

    def update(p: torch.Tensor, g: torch.Tensor, state: dict) -> None:
        if p.ndim == 1:
            p.sub_(g, alpha=0.01)
            return
        left = state.setdefault("left", torch.zeros(len(p), len(p)))
        right = state.setdefault("right", torch.zeros(p.shape[1], p.shape[1]))
        left.addmm_(g, g.T, beta=0.95)
        right.addmm_(g.T, g, beta=0.95)
        p.sub_(root(left) @ g @ root(right), alpha=0.01)

    return written(cast, update)


@program(bf16=False)
def gradients_in_few_dimensions(cast: Cast) -> Training:
    """GaLore: Adam in the space of a gradient's first singular vectors."""

    def update(p: torch.Tensor, g: torch.Tensor, state: dict) -> None:
        count = state["count"] = state.get("count", 0) + 1
        low = g
        if p.ndim == 2:
            if count == 1:
                state["space"] = torch.linalg.svd(g, full_matrices=False).U[:, :2]
            low = state["space"].T @ g
        mean = state.setdefault("mean", torch.zeros_like(low)).lerp_(low, 0.1)
        square = state.setdefault("square", torch.zeros_like(low)).mul_(0.99).addcmul_(low, low, value=0.01)
        step = mean / (1 - 0.9**count) / ((square / (1 - 0.99**count)).sqrt() + 1e-8)
        p.sub_(state["space"] @ step if p.ndim == 2 else step, alpha=1e-3)

    return written(cast, update)


@program(wrong=r"norm|div|mul|where")
def layer_by_layer(cast: Cast, wrong: bool) -> Training:
    """LAMB: a step as large as its weights; the bug takes the ratio upside down."""

    def update(p: torch.Tensor, g: torch.Tensor, state: dict) -> None:
        count = state["count"] = state.get("count", 0) + 1
        mean = state.setdefault("mean", torch.zeros_like(p)).mul_(0.9).add_(g, alpha=0.1)
        square = state.setdefault("square", torch.zeros_like(p)).mul_(0.999).addcmul_(g, g, value=0.001)
        step = (mean / (1 - 0.9**count)) / ((square / (1 - 0.999**count)).sqrt() + 1e-6) + 0.01 * p
        sizes = p.norm(), step.norm()
        ratio = sizes[1] / sizes[0] if wrong else sizes[0] / sizes[1]
        p.sub_(torch.where((sizes[0] > 0) & (sizes[1] > 0), ratio, torch.ones(())) * step, alpha=1e-3)

    return written(cast, update)


@program(wrong=r"sub|addcmul|square")
def belief(cast: Cast, wrong: bool) -> Training:
    """AdaBelief: what gradients do around their mean; the bug measures them around zero."""

    def update(p: torch.Tensor, g: torch.Tensor, state: dict) -> None:
        mean = state.setdefault("mean", torch.zeros_like(p)).lerp_(g, 0.1)
        off = g if wrong else g - mean
        spread = state.setdefault("spread", torch.zeros_like(p)).mul_(0.999).addcmul_(off, off, value=0.001).add_(1e-12)
        p.addcdiv_(mean, spread.sqrt().add_(1e-8), value=-1e-3)

    return written(cast, update)


@program()
def without_a_schedule(cast: Cast) -> Training:
    """Gradients at a mix of where the optimizer is and the average of where it was."""
    model, loss = regression()
    places = [p.detach().clone() for p in model.parameters()]
    average = [p.detach().clone() for p in model.parameters()]
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        with torch.no_grad():
            for p, z, x in zip(model.parameters(), places, average, strict=True):
                p.copy_(torch.lerp(z, x, 0.9))
        model.zero_grad()
        with cast():
            value = loss()
        value.backward()
        with torch.no_grad():
            torch._foreach_add_(places, [p.grad for p in model.parameters()], alpha=-0.05)
            torch._foreach_lerp_(average, places, 1 / count)

    return Training([model], [], step, {"places": places, "average": average})


@program(wrong=r"mul|sub|square|pow")
def anchored(cast: Cast, wrong: bool) -> Training:
    """Elastic weights: what mattered for an old task stays; the bug pulls toward zero."""
    model, loss = regression()
    old = [p.detach().clone() for p in model.parameters()]
    mattered = [torch.rand_like(p) for p in old]

    def kept() -> torch.Tensor:
        pulls = [
            (f * (p if wrong else p - o).square()).sum()
            for p, o, f in zip(model.parameters(), old, mattered, strict=True)
        ]
        return loss() + 0.5 * torch.stack(pulls).sum()

    return trained(model, torch.optim.SGD(model.parameters(), 0.05), kept, cast)


@program(bf16=False)
def memories_of_gradients(cast: Cast) -> Training:
    """A gradient that hurts an old task is projected onto where it does not."""
    model, loss = regression()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    x, y = torch.randn(8, 6), torch.randn(8, 3)

    def flat() -> torch.Tensor:
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        old = flat()
        optimizer.zero_grad()
        loss().backward()
        new = flat()
        along = new @ old
        if along.item() < 0:
            new = new - along / (old @ old) * old
            sizes = [p.numel() for p in model.parameters()]
            for p, part in zip(model.parameters(), new.split(sizes), strict=True):
                p.grad.copy_(part.view_as(p))
        optimizer.step()

    return Training([model], [optimizer], step)


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override, no-untyped-def]
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override, no-untyped-def]
        return gradient * (ctx.saved_tensors[0].abs() <= 1)


@program(bf16=False, wrong=r"mean|abs|mul")
def binary_weights(cast: Cast, wrong: bool) -> Training:
    """Weights of one bit and a scale a row, clipped after each step; the bug takes one scale for all."""
    layers = nn.ModuleList([nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)])
    optimizer = torch.optim.Adam(layers.parameters(), 1e-2)

    def step() -> None:
        def binary(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
            size = layer.weight.abs().mean() if wrong else layer.weight.abs().mean(1, keepdim=True)
            return F.linear(x, Sign.apply(layer.weight) * size.detach(), layer.bias)

        x = binary(layers[0], torch.randn(8, 6))
        loss = F.cross_entropy(binary(layers[2], Sign.apply(layers[1](x))), torch.randint(0, 3, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for layer in (layers[0], layers[2]):
                layer.weight.clamp_(-1, 1)

    return Training([layers], [optimizer], step)


@program()
def pruned_while_training(cast: Cast) -> Training:
    """The smallest weights are dropped and the largest gradients grow in their place."""
    model, loss = regression()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    weights = [p for p in model.parameters() if p.ndim == 2]
    masks = [(torch.rand_like(p) < 0.6).float() for p in weights]

    def step() -> None:
        with torch.no_grad():
            for p, mask in zip(weights, masks, strict=True):
                p.mul_(mask)
        optimizer.zero_grad()
        with cast():
            value = loss()
        value.backward()
        with torch.no_grad():
            for p, mask in zip(weights, masks, strict=True):
                count = 3
                drop = (p.abs() + (1 - mask) * 1e9).flatten().topk(count, largest=False).indices
                grow = (p.grad.abs() * (1 - mask)).flatten().topk(count).indices
                mask.view(-1)[drop] = 0
                mask.view(-1)[grow] = 1
                p.grad.mul_(mask)
        optimizer.step()

    return Training([model], [optimizer], step, {"masks": masks})


@program(wrong=r"lerp|sub|add|mul|div")
def slow_and_fast(cast: Cast, wrong: bool) -> Training:
    """Reptile: inner steps of a copy, toward which the weights move; the bug moves away."""
    model = mlp(2, 16, 1)

    def step() -> None:
        inner = copy.deepcopy(model)
        x, phase = torch.rand(8, 2), torch.rand(())
        for _ in range(3):
            with cast():
                value = F.mse_loss(inner(x).float(), torch.sin(6 * x[:, :1] + phase))
            slopes = torch.autograd.grad(value, list(inner.parameters()))
            with torch.no_grad():
                for p, slope in zip(inner.parameters(), slopes, strict=True):
                    p.sub_(slope, alpha=0.05)
        with torch.no_grad():
            for p, near in zip(model.parameters(), inner.parameters(), strict=True):
                p.add_(near - p, alpha=-0.1 if wrong else 0.1)

    return Training([model], [], step)


@program(bf16=False)
def several_workers(cast: Cast) -> Training:
    """Local steps of three workers, whose signs are voted on and whose errors are kept for the next time."""
    model, loss = regression()
    errors = [[torch.zeros_like(p) for p in model.parameters()] for _ in range(3)]

    def step() -> None:
        votes = [torch.zeros_like(p) for p in model.parameters()]
        for own in errors:
            model.zero_grad()
            loss().backward()
            with torch.no_grad():
                for vote, left, p in zip(votes, own, model.parameters(), strict=True):
                    wanted = p.grad + left
                    sent = wanted.sign() * wanted.abs().mean()
                    left.copy_(wanted - sent)
                    vote.add_(sent)
        with torch.no_grad():
            for p, vote in zip(model.parameters(), votes, strict=True):
                p.sub_(vote, alpha=0.02)

    return Training([model], [], step, {"errors": errors})
