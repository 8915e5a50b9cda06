"""Training without a plain backward: gradients by torch.func's transforms, by differences, by samples, and steps that
solve for them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, jacrev, jvp, stack_module_state, vmap

from .generative import mlp
from .training import Cast, Training, program, trained


@program()
def ensembles(cast: Cast) -> Training:
    """One model for many sets of weights, by functional_call under vmap; no module of them runs by itself."""
    base = mlp(6, 12, 3)
    stacked, _ = stack_module_state([mlp(6, 12, 3) for _ in range(3)])
    names, weights = list(stacked), nn.ParameterList([nn.Parameter(w.detach()) for w in stacked.values()])
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))

    def loss() -> torch.Tensor:
        held = dict(zip(names, weights, strict=True))
        logits = vmap(lambda some, batch: functional_call(base, some, (batch,)), (0, None))(held, x)
        return F.cross_entropy(logits.flatten(0, 1).float(), y.repeat(3))

    return trained(weights, torch.optim.SGD(weights.parameters(), 0.1), loss, cast)


@program()
def forward_gradients(cast: Cast) -> Training:
    """The derivative along a random direction, times that, in place of a gradient."""
    model = mlp(6, 12, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))

    def loss(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, weights, (x,)).float(), y)

    def step() -> None:
        weights = {name: weight.detach() for name, weight in model.named_parameters()}
        direction = {name: torch.randn_like(weight) for name, weight in weights.items()}
        with cast():
            _, slope = jvp(loss, (weights,), (direction,))
        for name, weight in model.named_parameters():
            weight.grad = slope * direction[name]
        optimizer.step()

    return Training([model], [optimizer], step)


@program(wrong=r"mul|div|sub")
def evolution_strategy(cast: Cast, wrong: bool) -> Training:
    """Differences along drawn directions; the bug forgets by how far they went."""
    model, far, pairs = mlp(4, 8, 2), 0.1, 4
    weights, optimizer = list(model.parameters()), torch.optim.Adam(model.parameters(), 0.01)
    x, y = torch.randn(16, 4), torch.randn(16, 2)

    @torch.no_grad()
    def loss_at(start: list[torch.Tensor], moved: list[torch.Tensor], by: float) -> torch.Tensor:
        for weight, value, direction in zip(weights, start, moved, strict=True):
            weight.copy_(value + by * direction)
        with cast():
            return F.mse_loss(model(x).float(), y)

    @torch.no_grad()
    def step() -> None:
        start = [weight.clone() for weight in weights]
        gradients = [torch.zeros_like(weight) for weight in weights]
        for _ in range(pairs):
            moved = [torch.randn_like(weight) for weight in weights]
            slope = (loss_at(start, moved, far) - loss_at(start, moved, -far)) / (2 if wrong else 2 * far)
            for gradient, direction in zip(gradients, moved, strict=True):
                gradient.add_(direction * slope)
        for weight, value, gradient in zip(weights, start, gradients, strict=True):
            weight.copy_(value)
            weight.grad = gradient / pairs
        optimizer.step()

    return Training([model], [optimizer], step)


@program(bf16=False, wrong=r"mm|sigmoid|sub|t\b|div|neg|bernoulli")
def contrastive_divergence(cast: Cast, wrong: bool) -> Training:
    """A Boltzmann machine; the bug takes hidden samples for probabilities in the negative phase."""
    weight, seen, hidden = (
        nn.Parameter(0.1 * torch.randn(8, 6)),
        nn.Parameter(torch.zeros(8)),
        nn.Parameter(torch.zeros(6)),
    )
    model = nn.ParameterList([weight, seen, hidden])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.bernoulli(torch.full((10, 8), 0.4))

    @torch.no_grad()
    def step() -> None:
        given = torch.sigmoid(data @ weight + hidden)
        sample = torch.bernoulli(given)
        dreamt = torch.bernoulli(torch.sigmoid(sample @ weight.T + seen))
        after = sample if wrong else torch.sigmoid(dreamt @ weight + hidden)
        weight.grad = (dreamt.T @ after - data.T @ given) / len(data)
        seen.grad = (dreamt - data).mean(0)
        hidden.grad = (after - given).mean(0)
        optimizer.step()

    return Training([model], [optimizer], step)


@program(bf16=False)
def gauss_newton(cast: Cast) -> Training:
    """A curve fitted by solving for each step, without an optimizer of PyTorch."""
    model = nn.ParameterList([nn.Parameter(torch.tensor([1.0, -0.5, 0.3]))])
    x = torch.linspace(0, 1, 12)
    y = 2 * torch.exp(-x) + 0.2 + 0.05 * torch.randn(12)

    def residuals(curve: torch.Tensor) -> torch.Tensor:
        return curve[0] * torch.exp(curve[1] * x) + curve[2] - y

    def step() -> None:
        curve = model[0].detach()
        slopes = jacrev(residuals)(curve)
        normal = slopes.T @ slopes
        damped = normal + 1e-3 * torch.diag(normal.diagonal())
        with torch.no_grad():
            model[0].sub_(torch.linalg.solve(damped, slopes.T @ residuals(curve)))

    return Training([model], [], step)
