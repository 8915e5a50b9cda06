"""AdamW written by hand, with its bias corrections as Python's numbers (1 - 0.999 ** t), against the framework's. A
step that is counted from zero makes another correction; eps inside the root is another update where gradients are
small."""

import copy

import torch
from models import MLP, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

RATE, B1, B2, EPS, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01


@scenario(
    "written AdamW",
    "AdamW by hand",
    size=(6, 24),
    by_hand=TYPE_I,
    folded=TYPE_I,
    counted=TYPE_II,
    inside=TYPE_II,
    suspect={"counted": r"B1 \*\*|B2 \*\*|second|first|step\(\)", "inside": r"EPS|step\(\)"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = MLP(16).to(dtype)
    other = copy.deepcopy(one)
    batches = [(normal(seed + i, size, 16, dtype=dtype), normal(seed - 1 - i, size, 8, dtype=dtype)) for i in range(2)]

    def target() -> dict[str, Tensor]:
        state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in one.parameters()]
        for t, (x, y) in enumerate(batches, 1):
            count = max(t - 1, 1) if variant == "counted" else t
            grads = torch.autograd.grad((one(x) - y).square().mean(), list(one.parameters()))
            with torch.no_grad():
                for p, g, (first, second) in zip(one.parameters(), grads, state, strict=True):
                    first.lerp_(g, 1 - B1)
                    second.mul_(B2).add_(g * g * (1 - B2))
                    p.mul_(1 - RATE * DECAY)
                    root = (1 - B2**count) ** 0.5
                    if variant == "folded":
                        p.sub_(RATE * root / (1 - B1**count) * first / (second.sqrt() + EPS * root))
                    elif variant == "inside":
                        p.sub_(RATE / (1 - B1**count) * first / (second / (1 - B2**count) + EPS).sqrt())
                    else:
                        p.sub_(RATE * (first / (1 - B1**count)) / ((second / (1 - B2**count)).sqrt() + EPS))
        return weights(one)

    def reference() -> dict[str, Tensor]:
        optimizer = torch.optim.AdamW(other.parameters(), RATE, (B1, B2), EPS, DECAY, foreach=False)
        for x, y in batches:
            optimizer.zero_grad()
            (other(x) - y).square().mean().backward()
            optimizer.step()
        return weights(other)

    return target, reference
