"""pytorch 22628: Adam's epsilon is scaled by the root of the second bias correction: (sqrt(v) + eps) / sqrt(c) for
sqrt(v) / sqrt(c) + eps."""

import copy
import math

import torch
from models import MLP, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario

LR, BETA_1, BETA_2, EPS = 1e-3, 0.9, 0.999, 1e-8


@scenario(
    "pytorch 22628",
    "Adam's epsilon scaled by the bias correction",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"EPS\) / math\.sqrt"},
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
                m, v = (1 - BETA_1) * p.grad, (1 - BETA_2) * p.grad * p.grad
                if variant == "bug":
                    denominator = (v.sqrt() + EPS) / math.sqrt(1 - BETA_2)
                else:
                    denominator = v.sqrt() / math.sqrt(1 - BETA_2) + EPS
                p -= LR / (1 - BETA_1) * m / denominator
        return {"loss": loss.detach(), **weights(written_out)}

    def reference() -> dict[str, torch.Tensor]:
        optimizer = torch.optim.Adam(library.parameters(), lr=LR, betas=(BETA_1, BETA_2), eps=EPS, foreach=False)
        loss = (library(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), **weights(library)}

    return target, reference
