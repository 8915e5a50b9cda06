"""A sampling temperature that the loss ignores: the actions of one program are drawn at another temperature, which the
loss, a function of the drawn actions, never shows. The distribution that is drawn from is part of the program."""

import copy

import torch
import torch.nn.functional as F
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

T = 0.7


@scenario(
    "temperature",
    "actions drawn at another temperature",
    size=(64, 128),
    same=TYPE_I,
    ignored=TYPE_II,
    suspect={"ignored": r"multinomial|softmax"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16, 8).to(dtype)
    other = copy.deepcopy(one)
    x, reward = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def taps(model: MLP, logits: Tensor, action: Tensor) -> dict[str, Tensor]:
        chosen = torch.log_softmax(logits / T, -1).gather(1, action)
        loss = -(chosen * reward.gather(1, action)).mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    def target() -> dict[str, Tensor]:
        logits = one(x)
        cold = logits.detach() if variant == "ignored" else logits.detach() / T
        return taps(one, logits, torch.multinomial(F.softmax(cold, -1), 1))

    def reference() -> dict[str, Tensor]:
        logits = other(x)
        weights = torch.exp((logits.detach() - logits.detach().amax(-1, keepdim=True)) / T)
        return taps(other, logits, torch.multinomial(weights / weights.sum(-1, keepdim=True), 1))

    return target, reference
