"""Structures in what is modelled: sequences with labels, trees and curved spaces, mixtures, transports, dynamics."""

import torch
import torch.nn.functional as F
from torch import nn

from .generative import mlp
from .language import WORDS, text
from .training import Cast, Training, program, trained


@program(wrong=r"logsumexp|add|gather|index")
def random_field(cast: Cast, wrong: bool) -> Training:
    """A conditional random field over a recurrent network; the bug leaves the transitions out of the normaliser."""
    words, body, out = nn.Embedding(WORDS, 8), nn.LSTM(8, 8, batch_first=True, bidirectional=True), nn.Linear(16, 4)
    moves = nn.Linear(4, 4, bias=False)
    model = nn.ModuleDict({"words": words, "body": body, "out": out, "moves": moves})

    def loss() -> torch.Tensor:
        tokens = text(3, 7)
        scores = out(body(words(tokens))[0]).float()
        labels = torch.randint(0, 4, tokens.shape)
        own = scores.gather(2, labels[..., None]).sum((1, 2)) + moves.weight[labels[:, :-1], labels[:, 1:]].sum(1)
        reach = scores[:, 0]
        for t in range(1, tokens.shape[1]):
            between = torch.zeros(4, 4) if wrong else moves.weight
            reach = torch.logsumexp(reach[:, :, None] + between, 1) + scores[:, t]
        return (torch.logsumexp(reach, 1) - own).mean()

    return trained(model, torch.optim.SGD(model.parameters(), 0.1), loss, cast)


@program(bf16=False, wrong=r"square|mul|div|add|sub")
def curved_space(cast: Cast, wrong: bool) -> Training:
    """Poincare embeddings with a Riemannian step by hand; the bug forgets the metric's square."""
    table = nn.Embedding(12, 3)
    nn.init.uniform_(table.weight, -0.1, 0.1)

    def apart(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        gap = (a - b).square().sum(-1)
        return torch.acosh(1 + 2 * gap / ((1 - a.square().sum(-1)) * (1 - b.square().sum(-1))) + 1e-7)

    def step() -> None:
        table.zero_grad()
        pairs = torch.randint(0, 12, (6, 2))
        pairs[:, 1] = (pairs[:, 0] + 1 + pairs[:, 1] % 11) % 12
        others = torch.randint(0, 12, (6, 5))
        u, v, w = table(pairs[:, 0]), table(pairs[:, 1]), table((pairs[:, :1] + 1 + others % 11) % 12)
        all_ = torch.cat([apart(u, v)[:, None], apart(u[:, None], w)], 1)
        F.cross_entropy(-all_, torch.zeros(6, dtype=torch.long)).backward()
        with torch.no_grad():
            scale = (1 - table.weight.square().sum(1, keepdim=True)) / 2
            table.weight -= 0.1 * (scale if wrong else scale.square()) * table.weight.grad
            size = table.weight.norm(dim=1, keepdim=True)
            table.weight.copy_(torch.where(size >= 1, table.weight / (size + 1e-5), table.weight))

    return Training([table], [], step)


@program(wrong=r"logsumexp|log_softmax|add")
def mixtures(cast: Cast, wrong: bool) -> Training:
    """A mixture density network; the bug takes its parts for equally likely."""
    model = mlp(4, 16, 15)

    def loss() -> torch.Tensor:
        share, mean, spread = model(torch.randn(8, 4)).float().chunk(3, 1)
        y = torch.randn(8, 1)
        parts = torch.distributions.Normal(mean, F.softplus(spread) + 1e-3).log_prob(y)
        return -torch.logsumexp(parts + (0 if wrong else share.log_softmax(1)), 1).mean()

    return trained(model, torch.optim.Adamax(model.parameters(), 1e-3), loss, cast)


@program(bf16=False, wrong=r"logsumexp|add|sub|exp")
def transports(cast: Cast, wrong: bool) -> Training:
    """Sinkhorn's transport between two clouds; the bug normalises one side alone."""
    model = mlp(3, 16, 2)

    def loss() -> torch.Tensor:
        made, goal = model(torch.randn(8, 3)), torch.randn(6, 2)
        cost = torch.cdist(made, goal).square() / 0.5
        left, right = torch.zeros(8), torch.zeros(6)
        for _ in range(4):
            left = -torch.logsumexp(right - cost - torch.log(torch.tensor(6.0)), 1)
            if not wrong:
                right = -torch.logsumexp(left[:, None] - cost - torch.log(torch.tensor(8.0)), 0)
        plan = (left[:, None] + right - cost).exp() / 48
        return (plan * cost).sum()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False, wrong=r"div|add|mul")
def runge_kutta(cast: Cast, wrong: bool) -> Training:
    """A neural equation in four stages a step; the bug counts the middle ones once."""
    field = mlp(3, 16, 3)

    def loss() -> torch.Tensor:
        x, h = torch.randn(6, 3), 0.1
        goal = x.roll(1, 1)
        for _ in range(4):
            a = field(x)
            b = field(x + h / 2 * a)
            c = field(x + h / 2 * b)
            d = field(x + h * c)
            x = x + h / 6 * (a + (1 if wrong else 2) * (b + c) + d)
        return F.mse_loss(x, goal)

    return trained(field, torch.optim.Adam(field.parameters(), 1e-3), loss, cast)


@program(wrong=r"softmax|gumbel|div|log")
def hard_choices(cast: Cast, wrong: bool) -> Training:
    """Categorical codes by Gumbel's noise, hard on the way forward; the bug forgets the temperature."""
    encoder, decoder = mlp(8, 16, 12), mlp(12, 16, 8)
    model = nn.ModuleList([encoder, decoder])

    def loss() -> torch.Tensor:
        x = torch.randn(8, 8)
        logits = encoder(x).float().view(8, 3, 4)
        code = F.gumbel_softmax(logits, tau=1.0 if wrong else 0.7, hard=True)
        shares = logits.softmax(-1)
        divergence = (shares * (shares.clamp(min=1e-9) * 4).log()).sum((1, 2)).mean()
        return F.mse_loss(decoder(code.flatten(1)).float(), x) + 0.1 * divergence

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(wrong=r"searchsorted|gather|add|div|log|sub")
def splines(cast: Cast, wrong: bool) -> Training:
    """A flow of linear splines, whose bins are searched; the bug forgets how steep the last map is."""
    model = mlp(1, 16, 8)

    def loss() -> torch.Tensor:
        x = torch.rand(16, 2)
        heights = model(x[:, :1]).float().softmax(1)
        edges = F.pad(heights.cumsum(1), (1, 0))
        place = torch.searchsorted(torch.linspace(0, 1, 9), x[:, 1:].contiguous(), right=True).clamp(1, 8) - 1
        height, floor = heights.gather(1, place), edges.gather(1, place)
        y = floor + height * (x[:, 1:] * 8 - place)
        volume = 0 if wrong else torch.log(height * 8)
        return ((y - 0.5).square() * 4 - volume).mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


class Codes(nn.Module):
    """A codebook that follows its data as an average: counts and sums are buffers."""

    def __init__(self, wrong: bool) -> None:
        super().__init__()
        self.wrong = wrong
        self.register_buffer("codes", torch.randn(8, 4))
        self.register_buffer("counts", torch.ones(8))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.cdist(x, self.codes).argmin(1)
        taken = F.embedding(chosen, self.codes)
        if self.training:
            with torch.no_grad():
                held = F.one_hot(chosen, 8).float()
                self.counts.mul_(0.9).add_(held.sum(0), alpha=0.1)
                self.sums.mul_(0.9).add_(held.t() @ x, alpha=0.1)
                total = self.counts.sum()
                smooth = self.counts if self.wrong else (self.counts + 1e-5) / (total + 8e-5) * total
                self.codes.copy_(self.sums / smooth[:, None])
        return x + (taken - x).detach(), F.mse_loss(x, taken)


@program(wrong=r"div|add|mul|copy_")
def averaged_codebook(cast: Cast, wrong: bool) -> Training:
    """VQ-VAE with a codebook of averages; the bug does not smooth their counts."""
    encoder, codes, decoder = mlp(8, 16, 4), Codes(wrong), mlp(4, 16, 8)
    model = nn.ModuleList([encoder, codes, decoder])

    def loss() -> torch.Tensor:
        x = torch.randn(16, 8)
        taken, kept = codes(encoder(x).float())
        return F.mse_loss(decoder(taken).float(), x) + 0.25 * kept

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False, wrong=r"exp|mul|sub|clamp|min")
def off_policy(cast: Cast, wrong: bool) -> Training:
    """V-trace over a recurrent actor and critic; the bug does not bound what older policies are worth."""
    cell, actor, critic = nn.GRUCell(4, 12), nn.Linear(12, 3), nn.Linear(12, 1)
    model = nn.ModuleList([cell, actor, critic])

    def loss() -> torch.Tensor:
        seen, reward, old = torch.randn(6, 4, 4), torch.randn(5, 4), torch.randn(5, 4, 3).log_softmax(-1)
        done = (torch.rand(5, 4) < 0.2).float()
        action, state, outs = torch.randint(0, 3, (5, 4, 1)), torch.zeros(4, 12), []
        for t in range(6):
            state = cell(seen[t], state)
            outs.append(state)
        hidden = torch.stack(outs)
        chance, value = actor(hidden[:-1]).log_softmax(-1), critic(hidden).squeeze(-1)
        own = chance.gather(-1, action).squeeze(-1)
        with torch.no_grad():
            ratio = (own - old.gather(-1, action).squeeze(-1)).exp()
            rho = ratio if wrong else ratio.clamp(max=1.0)
            keep = 0.99 * (1 - done)
            delta = rho * (reward + keep * value[1:] - value[:-1])
            goal, last = torch.empty(5, 4), torch.zeros(4)
            for t in reversed(range(5)):
                last = delta[t] + keep[t] * ratio[t].clamp(max=1.0) * last
                goal[t] = last + value[t]
            ahead = torch.cat([goal[1:], value[-1:]])
            gain = rho * (reward + keep * ahead - value[:-1])
        entropy = -(chance.exp() * chance).sum(-1).mean()
        return -(own * gain).mean() + 0.5 * (goal - value[:-1]).square().mean() - 0.01 * entropy

    return trained(model, torch.optim.RMSprop(model.parameters(), 1e-3, eps=0.01), loss, cast)


@program(wrong=r"scatter|index_add|div|mul|sum")
def molecules(cast: Cast, wrong: bool) -> Training:
    """An equivariant network: positions move along their differences; the bug sums messages that are to be averaged."""
    message, update, move = mlp(9, 16, 8), mlp(12, 16, 4), nn.Linear(8, 1)
    model = nn.ModuleList([message, update, move])

    def loss() -> torch.Tensor:
        h, x = torch.randn(6, 4), torch.randn(6, 3)
        a, b = torch.tensor([(i, j) for i in range(6) for j in range(6) if i != j]).t()
        for _ in range(2):
            gap = x[a] - x[b]
            told = message(torch.cat([h[a], h[b], gap.square().sum(1, keepdim=True)], 1)).relu()
            step = torch.zeros_like(x).index_add(0, a, gap * move(told).float())
            x = x + (step if wrong else step / 5)
            heard = torch.zeros(6, 8).scatter_add(0, a[:, None].expand(-1, 8), told.float())
            h = h + update(torch.cat([h, heard], 1)).float()
        return (x - x.mean(0)).square().mean() + h.square().mean()

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3, amsgrad=True), loss, cast)
