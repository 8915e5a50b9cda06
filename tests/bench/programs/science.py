"""Graphs, physics, spectra and linear algebra."""

import torch
import torch.nn.functional as F
from torch import nn

from .generative import mlp
from .training import Cast, Training, program, trained

NODES = 10
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 3, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 5, 7, 2]])


class GraphConvolution(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(width, out), nn.Linear(width, out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        source, target = EDGES
        degree = torch.zeros(NODES).index_add(0, target, torch.ones(len(target))).clamp(min=1)
        messages = torch.zeros_like(x).index_add(0, target, x[source])
        return self.own(x) + self.others(messages / degree[:, None])


@program(bf16=False)
def graph_convolutions(cast: Cast) -> Training:
    model = nn.Sequential(GraphConvolution(6, 16), nn.ReLU(), nn.Dropout(0.3), GraphConvolution(16, 3))
    x, y, known = torch.randn(NODES, 6), torch.randint(0, 3, (NODES,)), torch.arange(NODES) < 6
    return trained(
        model, torch.optim.Adam(model.parameters(), 1e-2), lambda: F.cross_entropy(model(x)[known], y[known]), cast
    )


class GraphAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.values, self.score = nn.Linear(6, 8, bias=False), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        source, target = EDGES
        h = self.values(x)
        score = F.leaky_relu(self.score(torch.cat([h[source], h[target]], 1)), 0.2).squeeze(1)
        most = torch.full((NODES,), -torch.inf).scatter_reduce(0, target, score.detach(), "amax")
        weight = (score - most[target]).exp()
        total = torch.zeros(NODES).scatter_add(0, target, weight)
        return torch.zeros(NODES, 8).index_add(0, target, h[source] * (weight / (total[target] + 1e-9))[:, None])


@program(bf16=False)
def graph_attention(cast: Cast) -> Training:
    model = GraphAttention()
    x, y = torch.randn(NODES, 6), torch.randint(0, 8, (NODES,))
    return trained(model, torch.optim.Adam(model.parameters(), 1e-2), lambda: F.cross_entropy(model(x), y), cast)


@program(bf16=False)
def graph_means_and_maxima(cast: Cast) -> Training:
    model, first = nn.Linear(12, 3), nn.Linear(6, 6)
    both = nn.ModuleList([model, first])
    x, y, owner = torch.randn(NODES, 6), torch.randint(0, 3, (4,)), torch.tensor([0, 0, 1, 1, 1, 2, 2, 3, 3, 3])

    def loss() -> torch.Tensor:
        h, place = F.relu(first(x)), owner[:, None].expand(-1, 6)
        mean = torch.zeros(4, 6).scatter_reduce(0, place, h, "mean", include_self=False)
        most = torch.zeros(4, 6).scatter_reduce(0, place, h, "amax", include_self=False)
        return F.cross_entropy(model(torch.cat([mean, most], 1)), y)

    return trained(both, torch.optim.Adam(both.parameters(), 1e-2), loss, cast)


@program(bf16=False)
def physics_informed(cast: Cast) -> Training:
    """The heat equation's residual, by second derivatives."""
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss() -> torch.Tensor:
        at = torch.rand(12, 2, requires_grad=True)
        u = model(at)
        first = torch.autograd.grad(u.sum(), at, create_graph=True)[0]
        second = torch.autograd.grad(first[:, 0].sum(), at, create_graph=True)[0][:, 0]
        edge = torch.stack([torch.rand(6), torch.zeros(6)], 1)
        return (first[:, 1] - 0.1 * second).square().mean() + (
            model(edge) - torch.sin(torch.pi * edge[:, :1])
        ).square().mean()

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def neural_equation(cast: Cast) -> Training:
    """A differential equation by Runge's and Kutta's method."""
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def loss() -> torch.Tensor:
        x, goal, h = torch.randn(8, 2), torch.randn(8, 2), 0.1
        for _ in range(4):
            a = model(x)
            b = model(x + h / 2 * a)
            c = model(x + h / 2 * b)
            x = x + h / 6 * (a + 2 * b + 2 * c + model(x + h * c))
        return F.mse_loss(x, goal)

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def energy_conserving(cast: Cast) -> Training:
    energy = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 1))

    def loss() -> torch.Tensor:
        state, change = torch.randn(8, 2, requires_grad=True), torch.randn(8, 2)
        slope = torch.autograd.grad(energy(state).sum(), state, create_graph=True)[0]
        return F.mse_loss(torch.stack([slope[:, 1], -slope[:, 0]], 1), change)

    return trained(energy, torch.optim.Adam(energy.parameters(), 1e-3), loss, cast)


class SpectralLayer(nn.Module):
    """A convolution by its Fourier coefficients, the lowest ones alone."""

    def __init__(self, width: int = 4, kept: int = 5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, kept, dtype=torch.cfloat) * 0.1)
        self.local = nn.Conv1d(width, width, 1)
        self.kept = kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = torch.fft.rfft(x)[..., : self.kept]
        mixed = torch.einsum("bif,iof->bof", low, self.weight)
        return F.gelu(torch.fft.irfft(mixed, n=x.shape[-1]) + self.local(x))


@program(bf16=False)
def spectral_operator(cast: Cast) -> Training:
    model = nn.Sequential(nn.Conv1d(1, 4, 1), SpectralLayer(), SpectralLayer(), nn.Conv1d(4, 1, 1))
    return trained(
        model,
        torch.optim.Adam(model.parameters(), 1e-3),
        lambda: F.mse_loss(model(torch.randn(4, 1, 16)), torch.randn(4, 1, 16)),
        cast,
    )


@program(bf16=False)
def spectrogram_loss(cast: Cast) -> Training:
    model = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.Tanh(), nn.Conv1d(8, 1, 5, padding=2))
    window = torch.hann_window(16)

    def loss() -> torch.Tensor:
        x = torch.randn(2, 64)
        made, goal = (
            torch.stft(signal, 16, 8, window=window, return_complex=True).abs().clamp(min=1e-5)
            for signal in (model(x[:, None]).squeeze(1), x.roll(1, 1))
        )
        return F.l1_loss(made.log(), goal.log()) + torch.linalg.norm(goal - made) / torch.linalg.norm(goal)

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


class Process(nn.Module):
    """A Gaussian process with a squared exponential kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.length, self.scale, self.noise = (nn.Parameter(torch.tensor(v)) for v in (0.0, 0.1, -1.0))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        distance = (x[:, None] - x[None]).square().sum(-1)
        kernel = self.scale.exp() * torch.exp(-0.5 * distance / self.length.exp().square())
        lower = torch.linalg.cholesky(kernel + self.noise.exp() * torch.eye(len(x)))
        white = torch.linalg.solve_triangular(lower, y[:, None], upper=False)
        return 0.5 * white.square().sum() + lower.diagonal().log().sum()


@program(bf16=False)
def gaussian_process(cast: Cast) -> Training:
    model, x = Process(), torch.randn(12, 2)
    y = x.sin().sum(1)
    return trained(model, torch.optim.Adam(model.parameters(), 0.05), lambda: model(x, y), cast)


@program(bf16=False)
def whitening(cast: Cast) -> Training:
    model = mlp(6, 16, 4)

    def loss() -> torch.Tensor:
        h = model(torch.randn(32, 6))
        h = h - h.mean(0)
        values, vectors = torch.linalg.eigh(h.T @ h / 31 + 0.1 * torch.eye(4))
        white = h @ vectors @ torch.diag(values.rsqrt()) @ vectors.T
        return F.mse_loss(white, torch.randn(32, 4))

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def nuclear_norm(cast: Cast) -> Training:
    model = nn.Linear(5, 4)

    def loss() -> torch.Tensor:
        return F.mse_loss(model(torch.randn(8, 5)), torch.randn(8, 4)) + 0.01 * torch.linalg.matrix_norm(
            model.weight, "nuc"
        )

    return trained(model, torch.optim.SGD(model.parameters(), 0.1), loss, cast)


@program(bf16=False)
def log_determinant(cast: Cast) -> Training:
    """An invertible 1 x 1 convolution."""
    weight = nn.Parameter(torch.linalg.qr(torch.randn(4, 4))[0])
    model = nn.Module()
    model.register_parameter("weight", weight)

    def loss() -> torch.Tensor:
        z = torch.randn(16, 4) @ weight.T
        return 0.5 * z.square().sum(1).mean() - torch.linalg.slogdet(weight)[1]

    return trained(model, torch.optim.Adam([weight], 1e-2), loss, cast)
