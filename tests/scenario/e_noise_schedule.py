"""A diffusion model's noise schedule: the running product of a thousand factors against the exponential of a sum of
logarithms. One that begins with another factor is a bug."""

import copy

import torch
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

STEPS = 1000


@scenario(
    "noise schedule",
    "a running product of a thousand factors",
    size=(8, 24),
    logarithms=TYPE_I,
    shifted=TYPE_II,
    suspect={"shifted": r"cumprod|ones"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    other = copy.deepcopy(one)
    x, noise = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)
    at = torch.randint(1, STEPS, (size,), generator=torch.Generator().manual_seed(seed))
    betas = torch.linspace(1e-4, 0.02, STEPS, dtype=dtype)

    def loss_of(model: MLP, kept: Tensor) -> dict[str, Tensor]:
        share = kept[at, None]
        loss = (model(share.sqrt() * x) - (1 - share).sqrt() * noise).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    def target() -> dict[str, Tensor]:
        if variant == "shifted":
            return loss_of(one, torch.cat([torch.ones(1, dtype=dtype), (1 - betas).cumprod(0)[:-1]]))
        return loss_of(one, torch.exp(torch.log1p(-betas).cumsum(0)))

    return target, lambda: loss_of(other, (1 - betas).cumprod(0))
