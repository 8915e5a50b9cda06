"""Contrastive learning and metrics."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from .generative import mlp
from .training import Cast, Training, program, trained


@program()
def two_views(cast: Cast) -> Training:
    """SimCLR's loss over two views of a batch."""
    model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))

    def loss() -> torch.Tensor:
        x = torch.randn(6, 12)
        z = F.normalize(model(torch.cat([x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)])).float(), dim=1)
        alike = (z @ z.T / 0.5).masked_fill(torch.eye(12, dtype=torch.bool), -torch.inf)
        return F.cross_entropy(alike, torch.arange(12).roll(6))

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


@program()
def pictures_and_words(cast: Cast) -> Training:
    """CLIP with a learned temperature."""
    pictures, words = mlp(12, 16, 8), mlp(6, 16, 8)
    model = nn.ModuleList([pictures, words])
    model.register_parameter("scale", nn.Parameter(torch.tensor(2.6592)))

    def loss() -> torch.Tensor:
        a = F.normalize(pictures(torch.randn(6, 12)).float(), dim=-1)
        b = F.normalize(words(torch.randn(6, 6)).float(), dim=-1)
        logits, own = model.scale.exp() * a @ b.T, torch.arange(6)
        return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def triplets(cast: Cast) -> Training:
    model = mlp(8, 16, 4)
    distance = nn.TripletMarginLoss(0.5)
    return trained(
        model,
        torch.optim.Adam(model.parameters(), 1e-3),
        lambda: distance(*(F.normalize(model(torch.randn(8, 8)), dim=1) for _ in range(3))),
        cast,
    )


class Queue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = mlp(8, 16, 4)
        self.slow = copy.deepcopy(self.own).requires_grad_(False)
        self.register_buffer("rows", F.normalize(torch.randn(16, 4), dim=1))
        self.register_buffer("next", torch.zeros(1, dtype=torch.long))


@program()
def momentum_contrast(cast: Cast) -> Training:
    model = Queue()

    def loss() -> torch.Tensor:
        x = torch.randn(4, 8)
        with torch.no_grad():
            for slow, own in zip(model.slow.parameters(), model.own.parameters(), strict=True):
                slow.mul_(0.99).add_(own, alpha=0.01)
            key = F.normalize(model.slow(x + 0.1).float(), dim=1)
        query = F.normalize(model.own(x).float(), dim=1)
        logits = torch.cat([(query * key).sum(1, keepdim=True), query @ model.rows.T.clone()], 1) / 0.07
        at = int(model.next)
        model.rows[at : at + 4] = key
        model.next[0] = (at + 4) % 16
        return F.cross_entropy(logits, torch.zeros(4, dtype=torch.long))

    return trained(model, torch.optim.SGD(model.own.parameters(), 0.05, momentum=0.9), loss, cast)


@program()
def without_negatives(cast: Cast) -> Training:
    """BYOL: a slow copy is predicted."""
    own, predictor = mlp(8, 16, 4), mlp(4, 8, 4)
    slow = copy.deepcopy(own).requires_grad_(False)
    model = nn.ModuleList([own, predictor])

    def loss() -> torch.Tensor:
        x = torch.randn(8, 8)
        with torch.no_grad():
            goal = F.normalize(slow(x + 0.1).float(), dim=1)
        return (2 - 2 * (F.normalize(predictor(own(x)).float(), dim=1) * goal).sum(1)).mean()

    def follow() -> None:
        with torch.no_grad():
            for old, new in zip(slow.parameters(), own.parameters(), strict=True):
                old.mul_(0.996).add_(new, alpha=0.004)

    made = trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast, follow)
    made.models.append(slow)
    return made


@program()
def decorrelated(cast: Cast) -> Training:
    """Barlow twins: the views' correlation shall be the identity."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))

    def loss() -> torch.Tensor:
        x = torch.randn(16, 8)
        a, b = (model(x + 0.1 * torch.randn_like(x)).float() for _ in range(2))
        a, b = ((z - z.mean(0)) / z.std(0) for z in (a, b))
        apart = (a.T @ b / 16 - torch.eye(6)).square()
        return apart.diagonal().sum() + 0.005 * (apart.sum() - apart.diagonal().sum())

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def angular_margin(cast: Cast) -> Training:
    """ArcFace."""
    model, centres = mlp(8, 16, 6), nn.Parameter(torch.randn(5, 6))
    model.register_parameter("centres", centres)

    def loss() -> torch.Tensor:
        y = torch.randint(0, 5, (8,))
        cosine = F.linear(F.normalize(model(torch.randn(8, 8))), F.normalize(centres)).clamp(-1 + 1e-6, 1 - 1e-6)
        margin = torch.cos(torch.acos(cosine) + 0.3)
        return F.cross_entropy(10 * torch.where(F.one_hot(y, 5).bool(), margin, cosine), y)

    return trained(model, torch.optim.SGD(model.parameters(), 0.05), loss, cast)
