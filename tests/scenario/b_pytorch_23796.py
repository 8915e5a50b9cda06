"""pytorch 23796: RMSprop with epsilon inside of the root, sqrt(v + eps), for sqrt(v) + eps."""

import copy

import torch
from models import MLP, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario

LR, ALPHA, EPS = 1e-3, 0.99, 1e-8


@scenario(
    "pytorch 23796",
    "RMSprop's epsilon inside of the root",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"v \+ EPS"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    written_out = MLP(16).to(dtype)
    library = copy.deepcopy(written_out)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def target() -> dict[str, torch.Tensor]:
        loss = (written_out(x) - y).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in written_out.parameters():
                v = (1 - ALPHA) * p.grad * p.grad
                denominator = (v + EPS).sqrt() if variant == "bug" else v.sqrt() + EPS
                p -= LR * p.grad / denominator
        return {"loss": loss.detach(), **weights(written_out)}

    def reference() -> dict[str, torch.Tensor]:
        optimizer = torch.optim.RMSprop(library.parameters(), lr=LR, alpha=ALPHA, eps=EPS, foreach=False)
        loss = (library(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), **weights(library)}

    return target, reference
