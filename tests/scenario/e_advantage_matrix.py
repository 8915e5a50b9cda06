"""Generalised advantages: a loop from the end of each episode, in numpy or in torch, against one product with a matrix
of powers of gamma times lambda. The matrix keeps episodes apart by comparing numbers of episodes that are floats."""

import numpy
import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

GAMMA, LAMBDA = 0.99, 0.95


@scenario(
    "advantage matrix",
    "advantages by a loop against a product with a matrix",
    size=(12, 40),
    numpy=TYPE_I,
    loop=TYPE_I,
    other_lambda=TYPE_II,
    biased=TYPE_II,
    clipped=TYPE_II,
    suspect={
        "other_lambda": r"mul|last|gamma|decay|add",
        "biased": r"std|advantage|div",
        "clipped": r"clamp|clip|minimum",
    },
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    policy = normal(seed, 5, 3, dtype=dtype).requires_grad_()
    value = normal(seed + 1, 5, dtype=dtype).requires_grad_()
    states, reward = normal(seed + 2, size + 1, 5, dtype=dtype), normal(seed + 3, size, dtype=dtype)
    old = -1.1 + 0.2 * normal(seed + 4, size, dtype=dtype)
    action = torch.randint(0, 3, (size,), generator=torch.Generator().manual_seed(seed + 5))
    done = torch.zeros(size, dtype=dtype)
    done[size // 3] = done[2 * size // 3] = 1

    def step(advantage: Tensor, values: Tensor, clip: float, unbiased: bool) -> dict[str, Tensor]:
        returns = advantage + values.detach()[:-1]
        advantage = (advantage - advantage.mean()) / (advantage.std(unbiased=unbiased) + 1e-8)
        chosen = torch.log_softmax(states[:-1] @ policy, -1)[torch.arange(size), action]
        ratio = torch.exp(chosen - old)
        clipped = torch.clamp(ratio, 1 - clip, 1 + clip)
        loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        loss = loss + 0.5 * (values[:-1] - returns).square().mean()
        grads = torch.autograd.grad(loss, [policy, value])
        return {"loss": loss.detach(), **{f"grad:{n}": g for n, g in zip(("policy", "value"), grads, strict=True)}}

    def in_numpy(values: Tensor) -> Tensor:
        v, r, ends = values.detach().numpy(), reward.numpy(), done.numpy()
        advantage, last = numpy.zeros(size, v.dtype), 0.0
        for t in reversed(range(size)):
            delta = r[t] + GAMMA * v[t + 1] * (1 - ends[t]) - v[t]
            advantage[t] = last = delta + GAMMA * LAMBDA * (1 - ends[t]) * last
        return torch.from_numpy(advantage)

    def in_torch(values: Tensor, decay: float) -> Tensor:
        v, last, advantage = values.detach(), torch.zeros((), dtype=dtype), []
        for t in reversed(range(size)):
            delta = reward[t] + GAMMA * v[t + 1] * (1 - done[t]) - v[t]
            last = delta + GAMMA * decay * (1 - done[t]) * last
            advantage.append(last)
        return torch.stack(advantage[::-1])

    def target() -> dict[str, Tensor]:
        values = states @ value
        if variant in ("numpy", "biased"):
            advantage = in_numpy(values)
        else:
            advantage = in_torch(values, LAMBDA + (1e-4 if variant == "other_lambda" else 0))
        return step(advantage, values, 0.2001 if variant == "clipped" else 0.2, variant != "biased")

    def reference() -> dict[str, Tensor]:
        values = states @ value
        with torch.no_grad():
            delta = reward + GAMMA * values[1:] * (1 - done) - values[:-1]
            episode = done.cumsum(0) - done
            index = torch.arange(size)
            later = (episode[:, None] == episode[None]) & (index[:, None] <= index[None])
            power = (GAMMA * LAMBDA) ** (index[None] - index[:, None]).clamp(min=0).to(dtype)
            advantage = torch.where(later, power, 0.0) @ delta
        return step(advantage, values, 0.2, True)

    return target, reference
