"""A mixture of experts: each token goes to the two best, by a loop over experts that picks their tokens, or by
products of all experts with weights of which most are zero. Weights of the chosen that no longer add up to 1 are a
bug."""

import copy

import torch
from models import gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn

EXPERTS, WIDTH = 4, 12


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))


@scenario(
    "expert routing",
    "experts by a loop over their tokens against all experts with weights",
    size=(8, 32),
    loop=TYPE_I,
    not_normalised=TYPE_II,
    suspect={"not_normalised": r"top|share|gather|index_add|expert"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one = Experts().to(dtype)
    other = copy.deepcopy(one)
    x, y = normal(seed, size, WIDTH, dtype=dtype), normal(seed + 1, size, WIDTH, dtype=dtype)

    def taps(model: Experts, out: Tensor) -> dict[str, Tensor]:
        loss = (out - y).square().mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(model)}

    def target() -> dict[str, Tensor]:
        top, index = torch.softmax(one.router(x), -1).topk(2, -1)
        share = top if variant == "not_normalised" else top / top.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(one.experts):
            row, place = torch.where(index == number)
            picked = share.flatten().index_select(0, row * 2 + place)
            out = out.index_add(0, row, expert(x.index_select(0, row)) * picked[:, None])
        return taps(one, out)

    def reference() -> dict[str, Tensor]:
        top, index = other.router(x).topk(2, -1)
        share = torch.zeros(size, EXPERTS, dtype=dtype).scatter(1, index, torch.softmax(top, -1))
        outs = torch.stack([expert(x) for expert in other.experts], 1)
        return taps(other, (share[:, :, None] * outs).sum(1))

    return target, reference
