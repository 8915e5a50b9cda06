"""Loops inside of a step: filters, simulations, memories, routes, fixed points, and losses over orders."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .generative import mlp
from .training import Cast, Training, program, trained


@program()
def cellular_automata(cast: Cast) -> Training:
    """Cells that see their neighbours' slopes, change at random times, and die where nobody is alive."""
    slope = torch.tensor([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]]) / 8
    own = F.pad(torch.ones(1, 1), (1, 1, 1, 1))
    senses = torch.stack([own, slope, slope.T]).repeat(6, 1, 1)[:, None]
    model = nn.Sequential(nn.Conv2d(18, 24, 1), nn.ReLU(), nn.Conv2d(24, 6, 1))
    target = torch.rand(2, 4, 8, 8)

    def alive(state: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(state[:, 3:4], 3, 1, 1) > 0.1

    def loss() -> torch.Tensor:
        state = torch.zeros(2, 6, 8, 8)
        state[:, 3:, 4, 4] = 1
        for _ in range(4):
            before = alive(state)
            seen = F.conv2d(F.pad(state, (1, 1, 1, 1), "circular"), senses, groups=6)
            state = state + model(seen) * (torch.rand(2, 1, 8, 8) < 0.5).float()
            state = state * (before & alive(state)).float()
        return F.mse_loss(state[:, :4], target)

    return trained(model, torch.optim.Adam(model.parameters(), 2e-3), loss, cast)


class Filter(nn.Module):
    def __init__(self, wrong: bool) -> None:
        super().__init__()
        self.moves = nn.Parameter(torch.eye(3) + 0.1 * torch.randn(3, 3))
        self.shows = nn.Parameter(torch.randn(2, 3))
        self.drift, self.noise = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2))
        self.wrong = wrong

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        mean, spread, total = torch.zeros(3), torch.eye(3), torch.zeros(())
        for y in seen:
            mean, spread = self.moves @ mean, self.moves @ spread @ self.moves.T + torch.diag(self.drift.exp())
            expected = self.shows @ spread @ self.shows.T + torch.diag(self.noise.exp())
            error = y - self.shows @ mean
            total = total + 0.5 * (torch.logdet(expected) + error @ torch.linalg.solve(expected, error))
            gain = spread @ self.shows.T @ torch.linalg.inv(expected)
            mean = mean + gain @ error
            spread = spread if self.wrong else (torch.eye(3) - gain @ self.shows) @ spread
        return total / len(seen)


@program(bf16=False, wrong=r"mm|mv|sub|eye|add")
def kalman_filter(cast: Cast, wrong: bool) -> Training:
    """The likelihood of a series; the bug never narrows what it expects."""
    model, seen = Filter(wrong), torch.randn(6, 2)
    return trained(model, torch.optim.Adam(model.parameters(), 1e-2), lambda: model(seen), cast)


@program(wrong=r"mul|index_add|sub|neg")
def springs(cast: Cast, wrong: bool) -> Training:
    """Stiffness and a push that bring a body where it should be; the bug pulls one end of each spring alone."""
    stiff, push = nn.Parameter(torch.full((12,), 5.0)), nn.Parameter(torch.zeros(6, 2))
    model = nn.ParameterList([stiff, push])
    first = torch.randint(6, (12,))
    second = (first + 1 + torch.randint(5, (12,))) % 6
    start, target, weight = torch.rand(6, 2), torch.rand(6, 2), torch.tensor([0.0, 0.1])

    def loss() -> torch.Tensor:
        place, speed = start, push
        for _ in range(5):
            apart = place[second] - place[first]
            length = apart.norm(dim=1, keepdim=True).clamp_min(1e-6)
            pull = stiff[:, None] * (length - 0.3) * apart / length
            force = torch.zeros(6, 2).index_add(0, first, pull) - weight
            force = force if wrong else force.index_add(0, second, -pull)
            speed = 0.98 * (speed + 0.02 * force)
            place = place + 0.02 * speed
        return F.mse_loss(place, target)

    return trained(model, torch.optim.Adam(model.parameters(), 0.05), loss, cast)


class Memory(nn.Module):
    """A neural Turing machine with one head, which moves by contents and by steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4 + 6, 16)
        self.heads = nn.ModuleDict(
            {
                name: nn.Linear(16, size)
                for name, size in {"key": 6, "shift": 3, "erase": 6, "add": 6, "gate": 2}.items()
            }
        )
        self.out = nn.Linear(16 + 6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, given = x.shape[0], []
        memory, state, read = torch.full((rows, 5, 6), 0.01), torch.zeros(rows, 16), torch.zeros(rows, 6)
        where = F.one_hot(torch.zeros(rows, dtype=torch.long), 5).float()
        for t in range(x.shape[1]):
            state = self.cell(torch.cat([x[:, t], read], 1), state).float()
            tell = {name: head(state) for name, head in self.heads.items()}
            sharp, gate = F.softplus(tell["gate"][:, :1]), torch.sigmoid(tell["gate"][:, 1:])
            alike = F.softmax(sharp * F.cosine_similarity(memory, tell["key"][:, None], dim=-1), -1)
            mixed = gate * alike + (1 - gate) * where
            shift = F.softmax(tell["shift"], -1)
            where = sum(shift[:, i : i + 1] * mixed.roll(i - 1, 1) for i in range(3)) ** (1 + sharp)
            where = where / (where.sum(1, keepdim=True) + 1e-6)
            memory = memory * (1 - where[..., None] * torch.sigmoid(tell["erase"])[:, None])
            memory = memory + where[..., None] * tell["add"][:, None]
            read = (where[..., None] * memory).sum(1)
            given.append(self.out(torch.cat([state, read], 1)))
        return torch.stack(given, 1)


@program()
def turing_machine(cast: Cast) -> Training:
    model, x = Memory(), torch.bernoulli(torch.full((3, 5, 4), 0.5))
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3, momentum=0.9)
    return trained(model, optimizer, lambda: F.binary_cross_entropy_with_logits(model(x).float(), x), cast)


def squashed(x: torch.Tensor) -> torch.Tensor:
    length = x.square().sum(-1, keepdim=True)
    return length / (1 + length) * x / (length + 1e-8).sqrt()


@program(wrong=r"softmax|mul|div")
def capsules(cast: Cast, wrong: bool) -> Training:
    """Routes by agreement; the bug shares out among the wrong capsules."""
    see, votes = nn.Conv2d(1, 16, 3, 2), nn.Parameter(0.1 * torch.randn(36, 3, 6, 4))
    model = nn.Module()
    model.see, model.votes = see, votes
    x, y = torch.randn(4, 1, 8, 8), F.one_hot(torch.arange(4) % 3, 3)

    def loss() -> torch.Tensor:
        low = squashed(see(x).float().view(4, 4, 4, -1).transpose(2, 3).reshape(4, -1, 4))
        vote = torch.einsum("bni,njdi->bnjd", low, votes)
        routes = torch.zeros(vote.shape[:3])
        for turn in range(3):
            high = squashed((routes.softmax(1 if wrong else 2)[..., None] * vote).sum(1))
            if turn < 2:
                routes = routes + (vote.detach() * high.detach()[:, None]).sum(-1)
        length = high.norm(dim=-1)
        return (y * F.relu(0.9 - length) ** 2 + 0.5 * (1 - y) * F.relu(length - 0.1) ** 2).sum(1).mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


class Equilibrium(nn.Module):
    """A fixed point, whose gradient is one too: a hook looks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.first, self.last = nn.Linear(8, 8), nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = self.first(x)

        def turn(z: torch.Tensor) -> torch.Tensor:
            return torch.tanh(0.4 * self.again(z) + given)

        with torch.no_grad():
            z = torch.zeros_like(given)
            for _ in range(15):
                z = turn(z)
        z = turn(z)
        held = z.detach().requires_grad_()
        turned = turn(held)

        def settled(gradient: torch.Tensor) -> torch.Tensor:
            found = gradient
            for _ in range(15):
                found = torch.autograd.grad(turned, held, found, retain_graph=True)[0] + gradient
            return found

        if z.requires_grad:
            z.register_hook(settled)
        return self.last(z)


@program()
def fixed_points(cast: Cast) -> Training:
    model, x, y = Equilibrium(), torch.randn(8, 4), torch.randn(8, 2)
    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), lambda: F.mse_loss(model(x).float(), y), cast)


@program(wrong=r"log|div|sub|sort")
def rankings(cast: Cast, wrong: bool) -> Training:
    """A list's likelihood, pairs weighed by what they cost, and a soft order; the bug weighs by another logarithm."""
    model, x, worth = mlp(6, 16, 1), torch.randn(4, 7, 6), torch.randint(4, (4, 7)).float()

    def loss() -> torch.Tensor:
        score = model(x).squeeze(-1).float()
        best = score.gather(1, torch.argsort(worth, dim=1, descending=True, stable=True))
        listed = (torch.logcumsumexp(best.flip(1), 1).flip(1) - best).sum(1).mean()
        apart = score[:, :, None] - score[:, None]
        place = score.argsort(1, descending=True).argsort(1) + 1
        share = 1 / (torch.log(place + 1.0) if wrong else torch.log2(place + 1.0))
        cost = ((2 ** worth[:, :, None] - 2 ** worth[:, None]) * (share[:, :, None] - share[:, None])).abs()
        paired = (cost * F.softplus(-apart))[worth[:, :, None] > worth[:, None]].mean()
        scale = 8 - 2 * torch.arange(1, 8)
        order = (score[:, None] * scale[None, :, None] - apart.abs().sum(2)[:, None]).softmax(-1)
        return listed + paired + F.mse_loss((order @ worth[..., None])[..., 0], worth.sort(1, descending=True)[0])

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)
