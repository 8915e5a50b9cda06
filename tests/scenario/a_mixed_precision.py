"""A11. Mixed-precision training whole, by hand: master weights in fp32, weights, activations and gradients stored in
fp16, sums in fp32, a scaled loss; three steps. And one that copies the master weights to fp16 only once."""

import copy
from typing import Any

import torch
from models import MLP, hazards, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor
from torch.func import functional_call

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
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    master = MLP(16).to(dtype)
    plain = copy.deepcopy(master)
    half = torch.float16 if dtype == torch.float32 else dtype
    batches = [
        (normal(seed + i, size, 16, dtype=dtype), normal(seed - i - 1, size, 8, dtype=dtype)) for i in range(STEPS)
    ]

    def narrow() -> dict[str, Tensor]:
        return {name: p.detach().to(half).requires_grad_() for name, p in master.named_parameters()}

    def target() -> dict[str, Tensor]:
        taps, copies = {}, narrow()
        for step, (x, y) in enumerate(batches):
            loss = (functional_call(master, copies, (x.to(half),)).to(dtype) - y).square().mean()
            (loss * SCALE).backward()
            taps[f"loss:{step}"] = loss.detach()
            with torch.no_grad():
                for name, p in master.named_parameters():
                    p.sub_(copies[name].grad.to(dtype) / SCALE, alpha=RATE)
                    taps[f"weight:{name}"] = p.detach().clone()
                    copies[name].grad = None
            if variant == "whole":
                copies = narrow()
        return taps

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
