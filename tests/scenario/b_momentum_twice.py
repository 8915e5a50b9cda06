"""Momentum applied twice: the buffer is multiplied by mu when the gradient is added, and again when it is used."""

import copy

import torch
from models import MLP, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario

LR, MU = 1e-2, 0.9


@scenario(
    "momentum twice",
    "momentum applied twice",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"grad \+ MU \* buffer"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    written_out = MLP(16).to(dtype)
    library = copy.deepcopy(written_out)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def loss_of(model: MLP) -> torch.Tensor:
        return (model(x) - y).square().mean()

    def target() -> dict[str, torch.Tensor]:
        buffers: list[torch.Tensor] = []
        for _ in range(2):
            loss = loss_of(written_out)
            grads = torch.autograd.grad(loss, list(written_out.parameters()))
            buffers = buffers or [torch.zeros_like(g) for g in grads]
            with torch.no_grad():
                for p, buffer, grad in zip(written_out.parameters(), buffers, grads, strict=True):
                    buffer.mul_(MU).add_(grad)
                    p -= LR * (grad + MU * buffer if variant == "bug" else buffer)
        return {"loss": loss.detach(), **weights(written_out)}

    def reference() -> dict[str, torch.Tensor]:
        optimizer = torch.optim.SGD(library.parameters(), lr=LR, momentum=MU, foreach=False)
        for _ in range(2):
            optimizer.zero_grad()
            loss = loss_of(library)
            loss.backward()
            optimizer.step()
        return {"loss": loss.detach(), **weights(library)}

    return target, reference
