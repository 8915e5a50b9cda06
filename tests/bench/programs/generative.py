"""Programs that generate: autoencoders, adversaries, diffusion, flows, codebooks."""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from .training import Cast, Training, program, trained


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


@program()
def variational_autoencoder(cast: Cast) -> Training:
    encoder, decoder = mlp(12, 16, 8), mlp(4, 16, 12)
    model = nn.ModuleList([encoder, decoder])

    def loss() -> torch.Tensor:
        x = torch.rand(8, 12)
        mean, log_variance = encoder(x).float().chunk(2, -1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1).mean()
        return F.binary_cross_entropy_with_logits(decoder(code).float(), x) * 12 + divergence

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program()
def adversaries(cast: Cast) -> Training:
    maker, judge = mlp(4, 16, 6), mlp(6, 16, 1)
    makers, judges = torch.optim.Adam(maker.parameters(), 2e-4), torch.optim.Adam(judge.parameters(), 2e-4)

    def step() -> None:
        noise, real = torch.randn(8, 4), torch.randn(8, 6)
        with cast():
            made = maker(noise)
            right, wrong = judge(real).float(), judge(made.detach()).float()
            loss = F.softplus(-right).mean() + F.softplus(wrong).mean()
        judges.zero_grad()
        loss.backward()
        judges.step()
        with cast():
            loss = F.softplus(-judge(made).float()).mean()
        makers.zero_grad()
        loss.backward()
        makers.step()

    return Training([maker, judge], [makers, judges], step)


@program(bf16=False)
def gradient_penalty(cast: Cast) -> Training:
    maker, judge = mlp(4, 16, 6), mlp(6, 16, 1)
    makers = torch.optim.Adam(maker.parameters(), 1e-3, betas=(0.0, 0.9))
    judges = torch.optim.Adam(judge.parameters(), 1e-3, betas=(0.0, 0.9))

    def step() -> None:
        real, made = torch.randn(8, 6), maker(torch.randn(8, 4)).detach()
        share = torch.rand(8, 1)
        between = (share * real + (1 - share) * made).requires_grad_()
        slope = torch.autograd.grad(judge(between).sum(), between, create_graph=True)[0]
        loss = judge(made).mean() - judge(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
        judges.zero_grad()
        loss.backward()
        judges.step()
        makers.zero_grad()
        (-judge(maker(torch.randn(8, 4))).mean()).backward()
        makers.step()

    return Training([maker, judge], [makers, judges], step)


@program()
def diffusion(cast: Cast) -> Training:
    model = mlp(7, 32, 6)
    kept = (1 - torch.linspace(1e-4, 0.02, 50)).cumprod(0)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))

    def loss() -> torch.Tensor:
        x, noise, when = torch.randn(8, 6), torch.randn(8, 6), torch.randint(0, 50, (8,))
        share = kept[when, None]
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        return F.mse_loss(model(torch.cat([noisy, when[:, None] / 50], 1)).float(), noise)

    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    made = trained(model, optimizer, loss, cast, lambda: average.update_parameters(model))
    made.state["average"] = average
    return made


@program(bf16=False)
def normalising_flow(cast: Cast) -> Training:
    couplings = nn.ModuleList(mlp(3, 16, 6) for _ in range(3))

    def loss() -> torch.Tensor:
        x, volume = torch.randn(16, 6) * 2 + 1, torch.zeros(16)
        for coupling in couplings:
            kept, moved = x.chunk(2, 1)
            scale, shift = coupling(kept).chunk(2, 1)
            scale = scale.tanh()
            x, volume = torch.cat([moved * scale.exp() + shift, kept], 1), volume + scale.sum(1)
        return -(torch.distributions.Normal(0.0, 1.0).log_prob(x).sum(1) + volume).mean()

    return trained(couplings, torch.optim.Adam(couplings.parameters(), 1e-3), loss, cast)


@program()
def codebook(cast: Cast) -> Training:
    encoder, decoder, book = mlp(12, 16, 4), mlp(4, 16, 12), nn.Embedding(16, 4)
    model = nn.ModuleList([encoder, decoder, book])

    def loss() -> torch.Tensor:
        x = torch.randn(8, 12)
        code = encoder(x).float()
        nearest = book(torch.cdist(code, book.weight).argmin(1))
        taken = code + (nearest - code).detach()
        kept = F.mse_loss(nearest, code.detach()) + 0.25 * F.mse_loss(code, nearest.detach())
        return F.mse_loss(decoder(taken).float(), x) + kept

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program()
def flow_matching(cast: Cast) -> Training:
    model = mlp(7, 32, 6)

    def loss() -> torch.Tensor:
        start, end, when = torch.randn(8, 6), torch.randn(8, 6) + 2, torch.rand(8, 1)
        place = (1 - when) * start + when * end
        return F.mse_loss(model(torch.cat([place, when], 1)).float(), end - start)

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)
