"""Attention over several sentences packed into one row, with a mask of blocks, against each sentence by itself.
Positions that go on over the border of a sentence are a bug."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

HEAD = 16


@scenario(
    "packed rows",
    "sentences packed into one row against each by itself",
    size=(5, 16),
    packed=TYPE_I,
    positions=TYPE_II,
    suspect={"positions": r"arange|position|x \+|part \+ table"},  # Either program's line that adds rows by position.
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    lengths = [size, size - 2, size + 1]
    x, table = normal(seed, sum(lengths), HEAD, dtype=dtype), normal(seed + 1, 4 * size, HEAD, dtype=dtype)
    q, k, v = ((normal(seed + i, HEAD, HEAD, dtype=dtype) / 4).requires_grad_() for i in (2, 3, 4))

    def taps(outs: Tensor) -> dict[str, Tensor]:
        loss = outs.square().mean()
        grads = torch.autograd.grad(loss, [q, k, v])
        return {"loss": loss.detach(), **{f"grad:{n}": g for n, g in zip("qkv", grads, strict=True)}}

    def target() -> dict[str, Tensor]:
        sentence = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
        position = torch.cat([torch.arange(n) for n in lengths])
        if variant == "positions":
            position = torch.arange(sum(lengths))
        h = x + table[position]
        seen = (sentence[:, None] == sentence[None]).tril()
        scores = (h @ q) @ (h @ k).T / HEAD**0.5
        return taps(torch.softmax(scores.masked_fill(~seen, -float("inf")), -1) @ (h @ v))

    def reference() -> dict[str, Tensor]:
        outs = []
        for part in x.split(lengths):
            h = part + table[: len(part)]
            outs.append(F.scaled_dot_product_attention((h @ q)[None], (h @ k)[None], (h @ v)[None], is_causal=True)[0])
        return taps(torch.cat(outs))

    return target, reference
