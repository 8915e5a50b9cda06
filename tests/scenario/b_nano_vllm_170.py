"""nano-vllm 170: `.float()` of a tensor that is fp32 already is the tensor itself, and an in-place multiply through it
corrupts the residual."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

EPS = 1e-6


@scenario(
    "nano-vllm 170",
    "float() aliases, in-place multiply corrupts the residual",
    size=(8, 64),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"hidden \+ wide|mul_"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, w = normal(seed, 4, size, dtype=dtype), normal(seed + 1, size, dtype=dtype)

    def target() -> dict[str, torch.Tensor]:
        hidden = x * 2
        wide = hidden.to(dtype)  # Copies only where the format differs.
        if variant == "fixed":
            wide = wide.clone()
        wide.mul_((wide.square().mean(-1, keepdim=True) + EPS).rsqrt()).mul_(w)
        out = hidden + wide
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, torch.Tensor]:
        hidden = x * 2
        out = hidden + hidden * (hidden.square().mean(-1, keepdim=True) + EPS).rsqrt() * w
        return {"loss": out.square().mean(), "out": out}

    return target, reference
