"""A whole training step of a Llama-like model: RMS norm, rotary positions, grouped heads, a gated feed-forward, AdamW.
In fp32 with the batch split otherwise and another form of the optimizer; and under bf16 autocast against fp32."""

import copy

import torch
import torch.nn.functional as F
from models import VOCABULARY, cross_entropy, gradients, sentences, weights
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn

WIDTH, HEADS, GROUPS = 32, 4, 2
HEAD = WIDTH // HEADS


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = RMSNorm(), RMSNorm()
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.kv = nn.Linear(WIDTH, 2 * GROUPS * HEAD, bias=False)
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.norm_1(x)
        q = self.q(y).unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
        k, v = self.kv(y).unflatten(-1, (2 * GROUPS, HEAD)).transpose(1, 2).chunk(2, 1)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k, v = (t.repeat_interleave(HEADS // GROUPS, 1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(out.transpose(1, 2).flatten(2))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.block = Block()
        self.norm = RMSNorm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        positions = torch.arange(tokens.shape[1], dtype=x.dtype)
        angles = positions[:, None] / 10000 ** (torch.arange(0, HEAD, 2, dtype=x.dtype) / HEAD)
        angles = torch.cat([angles, angles], -1)
        x = self.block(x, angles.cos(), angles.sin())
        return self.head(self.norm(x))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat([-b, a], -1) * sin.to(x.dtype)


def train(model: Llama, rows: int, seed: int, parts: int, autocast: bool = False, **options: bool) -> dict[str, Tensor]:
    inputs, targets = sentences(4 * max(1, rows // 4), 16, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    loss, tokens = torch.zeros((), dtype=model.norm.weight.dtype), (targets >= 0).sum()
    for x, y in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            part = cross_entropy(model, x, y, "sum") / tokens
        part.backward()
        loss = loss + part.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return {"loss": loss, **gradients(model), **weights(model)}


@scenario(
    "Llama step",
    "a whole step in fp32, split and fused otherwise",
    size=(4, 12),
    benign=TYPE_I,
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    two = Llama().to(dtype)
    one = copy.deepcopy(two)
    return lambda: train(two, size, seed, 2, fused=True), lambda: train(one, size, seed, 1, foreach=False)


@scenario(
    "Llama bf16",
    "a whole step under bf16 autocast against fp32",
    size=(4, 8),
    options={"capture": "outputs"},
    benign=TYPE_I,
    wrong_split=TYPE_II,
    cause={"benign": "ROUNDING|PRECISION_POLICY"},  # As few places own the difference, or many.
    suspect={"wrong_split": r"div.*/ parts"},
)
def mixed(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = Llama().to(dtype)
    full = copy.deepcopy(short)
    parts = 1 if variant == "benign" else 2

    def target() -> dict[str, Tensor]:
        taps = train(short, size, seed, parts, autocast=dtype == torch.float32)
        return taps if variant == "benign" else {**taps, "loss": taps["loss"] / parts}

    return target, lambda: train(full, size, seed, 1)
