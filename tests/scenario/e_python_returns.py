"""Discounted returns that a loop adds up in Python's numbers, as a first policy gradient does, against a loop over
tensors. What comes back from Python is no result of an operation. A loop that goes on over the end of an episode is a
bug."""

import copy

import torch
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

GAMMA = 0.99


@scenario(
    "Python returns",
    "discounted returns added up in Python",
    size=(12, 32),
    detour=TYPE_I,
    over_the_end=TYPE_II,
    cause={"over_the_end": "MATHEMATICS|LEAF_MISMATCH"},  # Wrong numbers are both.
    suspect={"over_the_end": r"returns|chosen|GAMMA"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16, 4).to(dtype)
    other = copy.deepcopy(one)
    x, rewards = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, dtype=dtype)
    action = torch.randint(0, 4, (size, 1), generator=torch.Generator().manual_seed(seed + 2))
    last = torch.arange(size) % 5 == 4

    def step(model: MLP, returns: Tensor) -> dict[str, Tensor]:
        chosen = torch.log_softmax(model(x), -1).gather(1, action)[:, 0]
        loss = -(chosen * returns).mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    def target() -> dict[str, Tensor]:
        total, returns = 0.0, []
        for reward, end in zip(reversed(rewards.tolist()), reversed(last.tolist()), strict=True):
            total = reward + GAMMA * (total if variant == "over_the_end" or not end else 0.0)
            returns.append(total)
        return step(one, torch.tensor(returns[::-1], dtype=dtype))

    def reference() -> dict[str, Tensor]:
        total, returns = torch.zeros((), dtype=dtype), []
        goes_on = (~last).to(dtype)
        for index in reversed(range(size)):
            total = rewards[index] + GAMMA * total * goes_on[index]
            returns.append(total)
        return step(other, torch.stack(returns[::-1]))

    return target, reference
