"""Label smoothing by the framework and by hand. The share of the other classes counts the right one among them;
divided by one class fewer it is another target."""

import copy

import torch
import torch.nn.functional as F
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

CLASSES, SMOOTHING = 10, 0.1


@scenario(
    "label smoothing",
    "label smoothing by hand",
    size=(8, 32),
    by_hand=TYPE_I,
    by_targets=TYPE_I,
    one_fewer=TYPE_II,
    suspect={"one_fewer": r"CLASSES - 1|nll_loss|cross_entropy|share"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16, CLASSES).to(dtype)
    other = copy.deepcopy(one)
    x = normal(seed, size, 16, dtype=dtype)
    y = torch.randint(0, CLASSES, (size,), generator=torch.Generator().manual_seed(seed + 1))

    def target() -> dict[str, Tensor]:
        log_p = torch.log_softmax(one(x), -1)
        if variant == "by_targets":
            goal = F.one_hot(y, CLASSES).to(dtype) * (1 - SMOOTHING) + SMOOTHING / CLASSES
            loss = -(goal * log_p).sum(-1).mean()
        else:
            share = SMOOTHING / (CLASSES - 1 if variant == "one_fewer" else CLASSES)
            picked = log_p.gather(1, y[:, None])[:, 0]
            loss = -((1 - SMOOTHING) * picked + share * log_p.sum(-1)).mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(one)}

    def reference() -> dict[str, Tensor]:
        loss = F.cross_entropy(other(x), y, label_smoothing=SMOOTHING)
        loss.backward()
        return {"loss": loss.detach(), **gradients(other)}

    return target, reference
