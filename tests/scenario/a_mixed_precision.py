"""A11. Mixed-precision training whole, by hand: master weights in fp32, weights, activations and gradients stored in
fp16, sums in fp32, a scaled loss; three steps. And one that copies the master weights to fp16 only once."""

import copy
from typing import Any

import torch
from models import MLP, hazards, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

SCALE, RATE, STEPS = 1024.0, 0.05, 3


def says(variant: str, verdict: Any) -> None:
    if variant == "whole":
        assert not hazards(verdict), verdict.explain()
        assert verdict.taps["loss:2"].drift > 0


@scenario(
    "A11 mixed precision",
    "master weights, loss scaling, fp16 storage, several steps",
    size=(8, 24),
    says=says,
    whole=TYPE_I,
    copied_once=TYPE_II,
    cause={"whole": "PRECISION_POLICY"},
    unplaced={"copied_once": "The bug is a copy that is not made: no operation of either program is the wrong one."},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    master = MLP(16).to(dtype)
    plain = copy.deepcopy(master)
    half = torch.float16 if dtype == torch.float32 else dtype
    working = copy.deepcopy(master).to(half)
    batches = [
        (normal(seed + i, size, 16, dtype=dtype), normal(seed - i - 1, size, 8, dtype=dtype)) for i in range(STEPS)
    ]

    def target() -> dict[str, Tensor]:
        taps = {}
        for step, (x, y) in enumerate(batches):
            working.zero_grad()
            loss = (working(x.to(half)).to(dtype) - y).square().mean()
            (loss * SCALE).backward()
            taps[f"loss:{step}"] = loss.detach()
            with torch.no_grad():
                for p, narrow in zip(master.parameters(), working.parameters(), strict=True):
                    p.sub_(narrow.grad.to(dtype) / SCALE, alpha=RATE)
                    if variant == "whole" or step == 0:
                        narrow.copy_(p)
        return taps | {f"weight:{name}": p.detach() for name, p in master.named_parameters()}

    def reference() -> dict[str, Tensor]:
        taps = {}
        optimizer = torch.optim.SGD(plain.parameters(), lr=RATE)
        for step, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            loss = (plain(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            taps[f"loss:{step}"] = loss.detach()
        return taps | {f"weight:{name}": p.detach() for name, p in plain.named_parameters()}

    return target, reference
