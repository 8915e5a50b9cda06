"""Weights that went through a checkpoint in bf16, against those that did not: each is the other rounded, a policy. A
checkpoint that cuts the last 16 bits off instead makes all weights smaller, which is no rounding to nearest."""

import copy

import torch
from models import MLP, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "weights through bf16",
    "weights that went through a checkpoint in bf16",
    size=(6, 24),
    rounded=TYPE_I,
    cut_off=TYPE_II,
    cause={"rounded": "PRECISION_POLICY", "cut_off": "LEAF_MISMATCH"},
    suspect={"cut_off": r"leaf param:fc_\d\.(weight|bias)"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    plain = MLP(16).to(dtype)
    loaded = copy.deepcopy(plain)
    with torch.no_grad():
        for p in loaded.parameters():
            single = p.float()
            cut = (single.view(torch.int32) & ~0xFFFF).view(torch.float32)
            p.copy_(cut if variant == "cut_off" else single.bfloat16())
    x = normal(seed, size, 16, dtype=dtype)

    def run(model: MLP) -> dict[str, Tensor]:
        with torch.no_grad():
            out = model(x)
            return {"loss": out.square().mean(), "out": out}

    return lambda: run(loaded), lambda: run(plain)
