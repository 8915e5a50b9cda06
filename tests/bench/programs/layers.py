"""Layers that are not of every network: spikes, splines, latents, windows, long convolutions, memories, trees."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from .generative import mlp
from .language import LENGTH, WIDTH, WORDS, next_word_loss, text
from .training import Cast, Training, program, trained
from .vision import images, labels


class Spike(torch.autograd.Function):
    """A step, whose derivative is taken for that of a fast sigmoid."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override, no-untyped-def]
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override, no-untyped-def]
        (x,) = ctx.saved_tensors
        return gradient / (10 * x.abs() + 1).square()


@program(wrong=r"mul|sub|where|rsub")
def spikes(cast: Cast, wrong: bool) -> Training:
    """Neurons that leak, fire and are set back; the bug never sets them back."""
    into, out = nn.Linear(6, 12), nn.Linear(12, 3)
    model = nn.ModuleList([into, out])

    def loss() -> torch.Tensor:
        voltage, count = torch.zeros(8, 12), torch.zeros(8, 3)
        for x in (torch.rand(5, 8, 6) < 0.5).float():
            voltage = 0.9 * voltage + into(x).float()
            fired = Spike.apply(voltage - 0.3)
            voltage = voltage if wrong else voltage - 0.3 * fired.detach()
            count = count + out(fired).float()
        return F.cross_entropy(count, torch.randint(0, 3, (8,)))

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


class SplineLayer(nn.Module):
    """Kolmogorov-Arnold: each edge has its own curve, of splines on a grid."""

    def __init__(self, inputs: int, outputs: int, cells: int = 5, degree: int = 3) -> None:
        super().__init__()
        step = 2 / cells
        self.register_buffer("grid", torch.arange(-degree, cells + degree + 1) * step - 1)
        self.degree, self.base = degree, nn.Linear(inputs, outputs)
        self.curves = nn.Parameter(0.1 * torch.randn(outputs, inputs, cells + degree))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, grid = x.float()[..., None], self.grid
        basis = ((y >= grid[:-1]) & (y < grid[1:])).float()
        for d in range(1, self.degree + 1):
            left = (y - grid[: -d - 1]) / (grid[d:-1] - grid[: -d - 1]) * basis[..., :-1]
            right = (grid[d + 1 :] - y) / (grid[d + 1 :] - grid[1:-d]) * basis[..., 1:]
            basis = left + right
        return self.base(F.silu(x)) + torch.einsum("big,oig->bo", basis, self.curves)


@program()
def curves_on_edges(cast: Cast) -> Training:
    model = nn.Sequential(SplineLayer(3, 6), nn.Tanh(), SplineLayer(6, 1))

    def loss() -> torch.Tensor:
        x = torch.rand(16, 3) * 2 - 1
        return F.mse_loss(model(x).float(), (x[:, :1] * x[:, 1:2]).sin() + x[:, 2:].square())

    return trained(model, torch.optim.Adam(model.parameters(), 1e-2), loss, cast)


@program(bf16=False)
def sines_all_through(cast: Cast) -> Training:
    """A signal and its gradient, fitted by a network of sines."""
    layers = nn.ModuleList([nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 1)])
    with torch.no_grad():
        for number, layer in enumerate(layers):
            width = layer.in_features
            layer.weight.uniform_(-1 / width, 1 / width) if number == 0 else layer.weight.uniform_(
                -math.sqrt(6 / width) / 30, math.sqrt(6 / width) / 30
            )

    def loss() -> torch.Tensor:
        place = (torch.rand(24, 2) * 2 - 1).requires_grad_()
        x = place
        for layer in layers[:-1]:
            x = torch.sin(30 * layer(x))
        value = layers[-1](x)
        slope = torch.autograd.grad(value.sum(), place, create_graph=True)[0]
        size = place.detach().norm(dim=1, keepdim=True)
        return F.mse_loss(value, size - 0.5) + 0.1 * (slope.norm(dim=1) - 1).square().mean()

    return trained(layers, torch.optim.Adam(layers.parameters(), 1e-4), loss, cast)


class Cross(nn.Module):
    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm, self.norm_of, self.mlp = nn.LayerNorm(width), nn.LayerNorm(width), mlp(width, 32, width)

    def forward(self, x: torch.Tensor, of: torch.Tensor, unseen: torch.Tensor | None = None) -> torch.Tensor:
        given = self.norm_of(of)
        x = x + self.attend(self.norm(x), given, given, key_padding_mask=unseen, need_weights=False)[0]
        return x + self.mlp(x)


@program(wrong=r"masked_fill|_scaled_dot|bmm|baddbmm|softmax|where|add")
def latents_of_a_set(cast: Cast, wrong: bool) -> Training:
    """A few latents read sets of several sizes, and are read by queries; the bug lets the padding be read."""
    latents, into, read, back = nn.Parameter(0.1 * torch.randn(4, 16)), nn.Linear(3, 16), Cross(), Cross()
    query, out = nn.Linear(2, 16), nn.Linear(16, 1)
    model = nn.ModuleList([into, read, back, query, out])
    model.register_parameter("latents", latents)

    def loss() -> torch.Tensor:
        points, sizes = torch.randn(4, 7, 3), torch.randint(2, 8, (4, 1))
        unseen = torch.arange(7) >= sizes
        state = read(latents.expand(4, -1, -1), into(points), None if wrong else unseen)
        made = out(back(query(torch.randn(4, 5, 2)), state)).float()
        return F.mse_loss(made, torch.randn(4, 5, 1))

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


class Windows(nn.Module):
    """Attention in windows that are shifted, with a learned bias by distance."""

    def __init__(self, size: int, window: int, shift: int, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.window, self.shift, self.heads = window, shift, heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(0.02 * torch.randn((2 * window - 1) ** 2, heads))
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = (at[:, :, None] - at[:, None, :]) + window - 1
        self.register_buffer("apart", apart[0] * (2 * window - 1) + apart[1])
        part = torch.zeros(1, size, size, 1)
        cuts = (slice(0, -window), slice(-window, -shift or None), slice(-shift, None) if shift else slice(0, 0))
        for number, (rows, columns) in enumerate((r, c) for r in cuts for c in cuts):
            part[:, rows, columns] = number
        own = self.split(part).squeeze(-1)
        self.register_buffer("mask", torch.where(own[:, None] == own[:, :, None], 0.0, -100.0)[:, None])

    def split(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        n = self.window
        return x.view(b, h // n, n, w // n, n, c).transpose(2, 3).reshape(-1, n * n, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        n = self.window
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        q, k, v = self.qkv(self.split(y)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(c // self.heads) + self.bias[self.apart].permute(2, 0, 1)
        if self.shift:
            scores = scores + self.mask.repeat(b, 1, 1, 1)
        y = self.out((scores.float().softmax(-1).to(v.dtype) @ v).transpose(1, 2).flatten(2))
        y = y.view(b, h // n, w // n, n, n, c).transpose(2, 3).reshape(b, h, w, c)
        return x + torch.roll(y, (self.shift, self.shift), (1, 2))


@program()
def shifted_windows(cast: Cast) -> Training:
    into, body, out = nn.Conv2d(3, 8, 1), nn.Sequential(Windows(8, 4, 0), Windows(8, 4, 2)), nn.Linear(32, 5)
    model = nn.ModuleList([into, body, out])

    def loss() -> torch.Tensor:
        x = body(into(images()).permute(0, 2, 3, 1))
        merged = torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1)
        return F.cross_entropy(out(merged.mean((1, 2))).float(), labels())

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


class Mixer(nn.Module):
    """A language model whose words are mixed by `mix`."""

    def __init__(self, mix: nn.Module) -> None:
        super().__init__()
        self.words, self.norm, self.mix = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH), mix
        self.mlp, self.head = mlp(WIDTH, 32, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        x = x + self.mix(self.norm(x))
        return self.head(x + self.mlp(x))


class LongConvolution(nn.Module):
    """A filter as long as the text, made by a network of its places, and applied by Fourier transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out, self.filter = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH), mlp(3, 16, WIDTH)
        self.decay = nn.Parameter(torch.linspace(0.5, 3, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        gate, x = self.into(x).float().chunk(2, -1)
        t = torch.linspace(0, 1, length)[:, None]
        taps = self.filter(torch.cat([t, (6 * t).sin(), (6 * t).cos()], 1)).float() * torch.exp(-self.decay.abs() * t)
        spectrum = torch.fft.rfft(x, 2 * length, dim=1) * torch.fft.rfft(taps, 2 * length, dim=0)
        return self.out(gate * torch.fft.irfft(spectrum, 2 * length, dim=1)[:, :length])


@program()
def long_convolutions(cast: Cast) -> Training:
    model = Mixer(LongConvolution())
    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), lambda: next_word_loss(model, text()), cast)


class Retention(nn.Module):
    """Attention without softmax whose memory decays; the bug lets words see what comes after."""

    def __init__(self, wrong: bool, heads: int = 2) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.GroupNorm(heads, WIDTH)
        gap = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        decay = 1 - 2.0 ** -(3 + torch.arange(heads))
        kept = decay[:, None, None] ** gap.clamp(min=0)
        self.register_buffer("decays", kept if wrong else kept * (gap >= 0))
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        length = x.shape[1]
        scores = q @ k.mT / math.sqrt(q.shape[-1]) * self.decays[:, :length, :length]
        scores = scores / scores.detach().abs().sum(-1, keepdim=True).clamp(min=1)
        y = (scores.to(v.dtype) @ v).transpose(1, 2).flatten(2)
        return self.out(F.silu(x) * self.norm(y.flatten(0, 1)).view_as(y))


@program(wrong=r"leaf|decays|mul")
def retention(cast: Cast, wrong: bool) -> Training:
    model = Mixer(Retention(wrong))
    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), lambda: next_word_loss(model, text()), cast)


class RelativeAttention(nn.Module):
    """As Transformer-XL: scores by distance, which a shift of the memory's layout puts at their places."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads, width = heads, WIDTH // heads
        self.q, self.kv, self.r = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.u, self.v = (nn.Parameter(0.1 * torch.randn(heads, 1, width)) for _ in range(2))
        self.memory: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        seen = x if self.memory is None else torch.cat([self.memory, x], 1)
        self.memory = x.detach()
        total = seen.shape[1]
        place = torch.arange(total - 1, -1, -1.0)[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        far = self.r(torch.cat([place.sin(), place.cos()], 1)).view(total, self.heads, -1).transpose(0, 1)
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(seen).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        by_place = F.pad((q + self.v) @ far.mT, (1, 0)).view(rows, self.heads, total + 1, length)[:, :, 1:]
        scores = ((q + self.u) @ k.mT + by_place.reshape(rows, self.heads, length, total)) / math.sqrt(q.shape[-1])
        later = torch.ones(length, total, dtype=torch.bool).triu(total - length + 1)
        return (scores.masked_fill(later, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)


@program()
def memories_of_old_text(cast: Cast) -> Training:
    model = Mixer(RelativeAttention())
    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), lambda: next_word_loss(model, text()), cast)


def sparsemax(x: torch.Tensor) -> torch.Tensor:
    """The nearest point of the simplex."""
    ordered, _ = x.sort(-1, descending=True)
    total = ordered.cumsum(-1) - 1
    place = torch.arange(1, x.shape[-1] + 1)
    inside = ordered * place > total
    count = inside.sum(-1, keepdim=True)
    return (x - total.gather(-1, count - 1) / count).clamp(min=0)


@program(bf16=False)
def sparse_features(cast: Cast) -> Training:
    """TabNet's: masks of features that are used up from step to step."""
    norm, first = nn.BatchNorm1d(8), nn.Linear(8, 16)
    attend, work = nn.ModuleList(nn.Linear(8, 8) for _ in range(2)), nn.ModuleList(nn.Linear(8, 16) for _ in range(2))
    out = nn.Linear(8, 3)
    model = nn.ModuleList([norm, first, attend, work, out])

    def loss() -> torch.Tensor:
        x = norm(torch.randn(16, 8))
        left, done = torch.ones(16, 8), torch.zeros(16, 8)
        entropy = torch.zeros(())
        state = F.glu(first(x), 1)
        for look, go in zip(attend, work, strict=True):
            mask = sparsemax(left * look(state))
            left = left * (1.3 - mask)
            entropy = entropy - (mask * (mask + 1e-15).log()).sum(1).mean()
            state = F.glu(go(mask * x), 1)
            done = done + state.relu()
        return F.cross_entropy(out(done), torch.randint(0, 3, (16,))) + 1e-3 * entropy

    return trained(model, torch.optim.Adam(model.parameters(), 2e-2), loss, cast)


@program(wrong=r"mul|rsub|prod|sigmoid|cumprod|stack")
def soft_trees(cast: Cast, wrong: bool) -> Training:
    """A forest whose decisions are soft; the bug goes left with the chance of both ways."""
    ways, leaves = nn.Linear(6, 4 * 7), nn.Parameter(torch.randn(4, 8, 3))
    model = nn.ModuleList([ways])
    model.register_parameter("leaves", leaves)

    def loss() -> torch.Tensor:
        right = ways(torch.randn(12, 6)).float().sigmoid().view(12, 4, 7)
        reach = torch.ones(12, 4, 1)
        for depth in range(3):
            here = right[:, :, 2**depth - 1 : 2 ** (depth + 1) - 1]
            left = 1 - here
            reach = torch.stack([reach * (here if wrong else left), reach * here], -1).flatten(2)
        guess = torch.einsum("btl,tlc->bc", reach, leaves.softmax(-1)) / 4
        return F.nll_loss((guess + 1e-6).log(), torch.randint(0, 3, (12,)))

    return trained(model, torch.optim.Adam(model.parameters(), 1e-2), loss, cast)


@program()
def weights_made_by_weights(cast: Cast) -> Training:
    """A network makes the filters of another, task by task."""
    make, tasks = mlp(4, 32, 3 * 3 * 3 * 4 + 4), nn.Embedding(3, 4)
    head = nn.Linear(4, 5)
    model = nn.ModuleList([make, tasks, head])

    def loss() -> torch.Tensor:
        made = make(tasks(torch.randint(0, 3, (4,))))
        filters, bias = made[:, :108].reshape(16, 3, 3, 3), made[:, 108:].reshape(16)
        x = F.conv2d(images().to(filters.dtype).view(1, 12, 8, 8), filters, bias, padding=1, groups=4)
        return F.cross_entropy(head(x.view(4, 4, 8, 8).relu().mean((2, 3))).float(), labels())

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(wrong=r"rsqrt|square|sum|mul|convolution")
def modulated_filters(cast: Cast, wrong: bool) -> Training:
    """StyleGAN2's: filters scaled by a style, then to unit size; the bug leaves that out."""
    style, filters, colour = mlp(6, 16, 8), nn.Parameter(torch.randn(8, 8, 3, 3)), nn.Conv2d(8, 3, 1)
    start, strength = nn.Parameter(torch.randn(1, 8, 4, 4)), nn.Parameter(torch.zeros(()))
    model = nn.ModuleList([style, colour])
    for name, weight in (("filters", filters), ("start", start), ("strength", strength)):
        model.register_parameter(name, weight)

    def loss() -> torch.Tensor:
        noise = torch.randn(3, 6)
        code = noise * (noise.square().mean(1, keepdim=True) + 1e-8).rsqrt()
        own = filters[None] * (style(code).float() + 1)[:, None, :, None, None]
        if not wrong:
            own = own * (own.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        x = F.interpolate(start.expand(3, -1, -1, -1), scale_factor=2, mode="bilinear", align_corners=False)
        x = F.conv2d(x.reshape(1, 24, 8, 8), own.view(24, 8, 3, 3), padding=1, groups=3).view(3, 8, 8, 8)
        x = F.leaky_relu(x + strength * torch.randn(3, 1, 8, 8), 0.2) * math.sqrt(2)
        return F.mse_loss(colour(x).float(), torch.randn(3, 3, 8, 8))

    return trained(model, torch.optim.Adam(model.parameters(), 2e-3, betas=(0.0, 0.99)), loss, cast)
