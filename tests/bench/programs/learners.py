"""Ways to learn: by inner loops, by samples' own gradients, under noise, against a twin, from several tasks."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from .generative import mlp
from .optimizers import regression
from .training import Cast, Training, program, trained


@program(wrong=r"sub|mul|neg")
def learning_to_learn(cast: Cast, wrong: bool) -> Training:
    """MAML: the gradient goes through the inner step; the bug cuts it there."""
    model = mlp(3, 16, 1)

    def loss() -> torch.Tensor:
        total = torch.zeros(())
        for _ in range(2):
            slope, x = torch.randn(3, 1), torch.randn(8, 3)
            weights = dict(model.named_parameters())
            inner = F.mse_loss(torch.func.functional_call(model, weights, x[:4]).float(), x[:4] @ slope)
            slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=not wrong)
            moved = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), slopes, strict=True)}
            total = total + F.mse_loss(torch.func.functional_call(model, moved, x[4:]).float(), x[4:] @ slope)
        return total / 2

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False, wrong=r"clamp|mul|div|norm|randn|add")
def private_gradients(cast: Cast, wrong: bool) -> Training:
    """Each sample's gradient is clipped, then noise is added; the bug clips their sum."""
    model = mlp(5, 8, 2)
    weights = dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def one(held: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(model, held, x[None]), y[None])

    def step() -> None:
        x, y = torch.randn(6, 5), torch.randint(0, 2, (6,))
        each = torch.func.vmap(torch.func.grad(one), (None, 0, 0))({n: w.detach() for n, w in weights.items()}, x, y)
        sizes = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
        kept = (1.0 / (sizes.norm().expand(6) if wrong else sizes).clamp(min=1e-6)).clamp(max=1.0)
        for name, weight in weights.items():
            noise = torch.randn_like(weight) * 0.5
            weight.grad = (torch.einsum("b,b...->...", kept, each[name]) + noise) / 6
        optimizer.step()

    return Training([model], [optimizer], step)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, share: float) -> torch.Tensor:
        ctx.share = share
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.share * grad, None


@program(wrong=r"mul|neg")
def domains(cast: Cast, wrong: bool) -> Training:
    """A gradient that is reversed on its way back; the bug forgets its sign."""
    body, kind, domain = mlp(6, 16, 8), nn.Linear(8, 3), nn.Linear(8, 2)
    model = nn.ModuleList([body, kind, domain])

    def loss() -> torch.Tensor:
        x, y = torch.randn(8, 6), torch.randint(0, 3, (4,))
        features = body(x).relu()
        source = torch.arange(8) // 4
        guess = domain(Reversed.apply(features, 0.3 if wrong else -0.3))
        return F.cross_entropy(kind(features[:4]).float(), y) + F.cross_entropy(guess.float(), source)

    return trained(model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True), loss, cast)


@program(wrong=r"softmax|sub|div|lerp|mul")
def taught_by_oneself(cast: Cast, wrong: bool) -> Training:
    """DINO: a teacher that is an average, centred and sharpened; the bug does not centre."""
    student = nn.Sequential(mlp(6, 16, 8), nn.utils.parametrizations.weight_norm(nn.Linear(8, 12, bias=False)))
    teacher = copy.deepcopy(student).requires_grad_(False)
    centre = torch.zeros(12)
    optimizer = torch.optim.AdamW(student.parameters(), 1e-3)

    def loss() -> torch.Tensor:
        x = torch.randn(8, 6)
        views = [x + 0.1 * torch.randn_like(x) for _ in range(2)]
        with torch.no_grad():
            given = [teacher(view).float() for view in views]
            goals = [((g if wrong else g - centre) / 0.04).softmax(-1) for g in given]
            centre.lerp_(torch.cat(given).mean(0), 0.1)
        ours = [(student(view).float() / 0.1).log_softmax(-1) for view in views]
        return -(goals[0] * ours[1] + goals[1] * ours[0]).sum(-1).mean() / 2

    def follow() -> None:
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.mul_(0.99).add_(new, alpha=0.01)

    made = trained(student, optimizer, loss, cast, follow)
    made.models.append(teacher)
    made.state["centre"] = centre
    return made


@program(bf16=False)
def conflicting_tasks(cast: Cast) -> Training:
    """PCGrad: of two tasks' gradients what conflicts is taken out, task by task, in Python."""
    model = mlp(4, 16, 2)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    weights = list(model.parameters())

    def step() -> None:
        out = model(torch.randn(8, 4))
        losses = [F.mse_loss(out[:, 0], torch.randn(8)), F.l1_loss(out[:, 1], torch.randn(8))]
        flat = [
            torch.cat([g.flatten() for g in torch.autograd.grad(one, weights, retain_graph=True)]) for one in losses
        ]
        moved = []
        for own, other in ((flat[0], flat[1]), (flat[1], flat[0])):
            along = own @ other
            moved.append(own - along / other.square().sum() * other if along < 0 else own)
        parts = (moved[0] + moved[1]).split([w.numel() for w in weights])
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part.view_as(weight).clone()
        optimizer.step()

    return Training([model], [optimizer], step)


@program(wrong=r"exp|log|mul")
def weighed_tasks(cast: Cast, wrong: bool) -> Training:
    """Tasks weighed by an uncertainty that is learned; the bug forgets the term that keeps it finite."""
    model, spread = mlp(6, 16, 4), nn.ParameterList([nn.Parameter(torch.zeros(())) for _ in range(2)])
    both = nn.ModuleList([model, spread])

    def loss() -> torch.Tensor:
        out = model(torch.randn(8, 6)).float()
        parts = F.huber_loss(out[:, 0], torch.randn(8)), F.cross_entropy(out[:, 1:], torch.randint(0, 3, (8,)))
        total = torch.zeros(())
        for s, part in zip(spread, parts, strict=True):
            total = total + torch.exp(-s) * part + (0 if wrong else s)
        return total

    return trained(both, torch.optim.NAdam(both.parameters(), 1e-3), loss, cast)


@program(wrong=r"round|add|sub|mul|fake|clamp")
def learned_grids(cast: Cast, wrong: bool) -> Training:
    """Quantisation-aware training with learned steps and straight-through roundings; the bug rounds down."""
    model = nn.ModuleDict({"a": nn.Linear(8, 16), "b": nn.Linear(16, 3)})
    grids = nn.ParameterDict({name: nn.Parameter(torch.tensor(0.05)) for name in model})
    both = nn.ModuleDict({"model": model, "grids": grids})

    def rounded(weight: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        scaled = (weight / grid).clamp(-8, 7)
        near = scaled.floor() if wrong else scaled.round()
        return (scaled + (near - scaled).detach()) * grid

    def loss() -> torch.Tensor:
        x = torch.randn(8, 8)
        for name, layer in model.items():
            x = F.linear(x, rounded(layer.weight, grids[name]), layer.bias)
            x = x.relu() if name == "a" else x
        return F.cross_entropy(x.float(), torch.randint(0, 3, (8,)))

    return trained(both, torch.optim.Adam(both.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def scaled_halves(cast: Cast) -> Training:
    """fp16 with a scaler that grows, and gradients clipped after they were unscaled."""
    model, _ = regression()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler(torch.get_default_device().type, init_scale=1024.0, growth_interval=2)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(torch.get_default_device().type, torch.float16):
            loss = F.mse_loss(model(torch.randn(8, 6)).float(), torch.randn(8, 3))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()

    return Training([model], [optimizer], step)


@program(bf16=False)
def two_twins(cast: Cast) -> Training:
    """Bayes by backpropagation: weights are drawn, and told from their prior by a divergence."""
    mean, spread = mlp(4, 8, 1), mlp(4, 8, 1)
    with torch.no_grad():
        for weight in spread.parameters():
            weight.fill_(-3.0)
    both = nn.ModuleList([mean, spread])
    prior = torch.distributions.Normal(0.0, 1.0)

    def loss() -> torch.Tensor:
        held, divergence = {}, torch.zeros(())
        for (name, m), s in zip(mean.named_parameters(), spread.parameters(), strict=True):
            own = torch.distributions.Normal(m, F.softplus(s))
            held[name] = own.rsample()
            divergence = divergence + torch.distributions.kl_divergence(own, prior).sum()
        x = torch.randn(8, 4)
        return F.gaussian_nll_loss(
            torch.func.functional_call(mean, held, x), x.sum(1, True), torch.full((8, 1), 0.1)
        ) + (divergence / 100)

    return trained(both, torch.optim.Adam(both.parameters(), 1e-2), loss, cast)
