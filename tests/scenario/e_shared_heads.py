"""Keys and values that groups of heads share, repeated by expand or by repeat_interleave. repeat() puts them in
another order: each head gets a key, but not its group's."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

HEADS, GROUPS, HEAD = 6, 2, 8


@scenario(
    "shared heads",
    "keys that groups of heads share",
    size=(6, 24),
    expanded=TYPE_I,
    by_einsum=TYPE_I,
    repeated=TYPE_II,
    suspect={"repeated": r"repeat|transpose|@"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    q = normal(seed, 2, HEADS, size, HEAD, dtype=dtype)
    k, v = (normal(seed + i, 2, GROUPS, size, HEAD, dtype=dtype) for i in (1, 2))
    times = HEADS // GROUPS

    def attend(k: Tensor, v: Tensor) -> dict[str, Tensor]:
        out = torch.softmax(q @ k.transpose(-2, -1) / HEAD**0.5, -1) @ v
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, Tensor]:
        if variant == "by_einsum":
            grouped = q.unflatten(1, (GROUPS, times)) / HEAD**0.5
            shares = torch.einsum("bgtqd,bgkd->bgtqk", grouped, k).softmax(-1)
            out = torch.einsum("bgtqk,bgkd->bgtqd", shares, v).flatten(1, 2)
            return {"loss": out.square().mean(), "out": out}
        if variant == "repeated":
            return attend(k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1))
        return attend(*(t[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2) for t in (k, v)))

    return target, lambda: attend(k.repeat_interleave(times, 1), v.repeat_interleave(times, 1))
