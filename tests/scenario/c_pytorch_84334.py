"""pytorch 84334: a whole step of a small network, forward and backward, whose products run in TF32."""

import copy

import torch
from emulated import device, kernels, products, tf32
from models import MLP, gradients, normal
from scenario import TYPE_I, Program, scenario


@scenario(
    "pytorch 84334",
    "a training step in TF32 against fp32",
    size=(8, 24),
    options={"profile": "cuda-sm80+tf32", "capture": "outputs"},
    device=device,
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = MLP(32).to(dtype)
    full = copy.deepcopy(short)
    x, y = normal(seed, size, 32, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def step(model: MLP) -> dict[str, torch.Tensor]:
        loss = (model(x) - y).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    def target() -> dict[str, torch.Tensor]:
        with kernels(products(tf32(4))):
            return step(short)

    return target, lambda: step(full)
