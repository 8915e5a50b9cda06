"""Mixup: pairs by a drawn permutation, mixed by a product and a sum or by lerp, the loss as a mixture of two losses or
of one with mixed targets. Losses mixed the other way round are a bug."""

import copy

import torch
import torch.nn.functional as F
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

SHARE = 0.3


@scenario(
    "mixup",
    "mixed images and losses against mixed targets",
    size=(8, 32),
    losses=TYPE_I,
    other_way=TYPE_II,
    suspect={"other_way": r"SHARE|cross_entropy|nll"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    other = copy.deepcopy(one)
    x = normal(seed, size, 16, dtype=dtype)
    y = torch.randint(0, 8, (size,), generator=torch.Generator().manual_seed(seed + 1))

    def target() -> dict[str, Tensor]:
        pair = torch.randperm(size)
        logits = one(SHARE * x + (1 - SHARE) * x[pair])
        mine, theirs = (F.cross_entropy(logits, t) for t in (y, y[pair]))
        mine, theirs = (theirs, mine) if variant == "other_way" else (mine, theirs)
        loss = SHARE * mine + (1 - SHARE) * theirs
        loss.backward()
        return {"loss": loss.detach(), **gradients(one)}

    def reference() -> dict[str, Tensor]:
        pair = torch.randperm(size)
        goal = F.one_hot(y, 8).to(dtype)
        goal = torch.lerp(goal[pair], goal, SHARE)
        loss = F.cross_entropy(other(torch.lerp(x[pair], x, SHARE)), goal)
        loss.backward()
        return {"loss": loss.detach(), **gradients(other)}

    return target, reference
