"""Advantages that numpy normalises between two parts of a step, against the same in torch. What comes back from numpy
is no result of an operation; it is what the other program computes. numpy divides by n, torch by n - 1 unless it is
told."""

import copy

import numpy
import torch
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor


@scenario(
    "numpy advantages",
    "advantages normalised in numpy",
    size=(12, 64),
    detour=TYPE_I,
    unbiased=TYPE_II,
    suspect={"unbiased": r"std|advantage"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16, 4).to(dtype)
    other = copy.deepcopy(one)
    x, returns, values = (
        normal(seed + i, *shape, dtype=dtype) for i, shape in enumerate(((size, 16), (size,), (size,)))
    )
    action = torch.randint(0, 4, (size, 1), generator=torch.Generator().manual_seed(seed + 3))

    def step(model: MLP, advantage: Tensor) -> dict[str, Tensor]:
        chosen = torch.log_softmax(model(x), -1).gather(1, action)[:, 0]
        loss = -(chosen * advantage).mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    def target() -> dict[str, Tensor]:
        raw = (returns - values).numpy()
        advantage = (raw - raw.mean()) / (numpy.std(raw) + 1e-8)
        return step(one, torch.from_numpy(advantage))

    def reference() -> dict[str, Tensor]:
        raw = returns - values
        advantage = (raw - raw.mean()) / (raw.std(unbiased=variant == "unbiased") + 1e-8)
        return step(other, advantage)

    return target, reference
