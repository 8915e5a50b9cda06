"""Small training runs that meet what a capture meets."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import plumbline


def watched(
    server: str,
    job: str,
    name: str,
    reference: str | None,
    net: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    steps: int,
    step: Callable[[int], object],
) -> list[plumbline.Verdict]:
    """Verdicts of a run that calls `step` with each step's number."""
    with plumbline.watch(
        net, optimizer, server, job=job, run=name, reference=reference, every=1, keep_trace=True
    ) as audit:
        for number in range(steps):
            with audit.step():
                step(number)
            assert audit.flush()
        assert not audit.errors()
        return audit.verdicts()


class Block(nn.Module):
    def __init__(self, width: int, heads: int, fused: bool, dropout: float) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.fused, self.drop = heads, fused, nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).split(width, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
            mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(F.gelu(self.up(self.after(x)))))


class GPT(nn.Module):
    def __init__(
        self, fused: bool = False, tied: bool = False, dropout: float = 0.0, recompute: str = "", width: int = 32
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(48, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList([Block(width, 4, fused, dropout) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 48, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        self.recompute = recompute

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, use_reentrant=self.recompute == "reentrant")
            else:
                x = block(x)
        return self.head(self.norm(x))


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 48))

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.one_hot(tokens % 16, 16).float().flatten(0, 1)
        return self.layers(x).view(*tokens.shape, 48)


@dataclass(frozen=True)
class Setup:
    name: str
    model: str = "gpt"
    optimizer: str = "adamw"
    tied: bool = False
    fused: bool = False
    dropout: float = 0.0
    recompute: str = ""
    autocast: bool = False
    half: bool = False
    accumulate: int = 1
    clip: float = 0.0
    scaler: bool = False
    keep_grads: bool = False


SETUPS = [
    Setup("sgd", optimizer="sgd"),
    Setup("sgd-foreach", optimizer="sgd-foreach"),
    Setup("adamw"),
    Setup("adamw-foreach", optimizer="adamw-foreach", clip=1.0),
    Setup("adamw-fused", optimizer="adamw-fused", clip=1.0),
    Setup("autocast", autocast=True, fused=True, optimizer="adamw-foreach"),
    Setup("autocast-written-out", autocast=True, tied=True),
    Setup("bf16", half=True, optimizer="adamw-fused"),
    Setup("tied", tied=True, clip=1.0),
    Setup("accumulate", accumulate=3, tied=True, optimizer="adamw-foreach", clip=0.5),
    Setup("checkpoint", recompute="nonreentrant", dropout=0.1),
    Setup("checkpoint-reentrant", recompute="reentrant", dropout=0.1),
    Setup("dropout", dropout=0.2, fused=True, accumulate=2),
    Setup("scaler", scaler=True, autocast=True, optimizer="sgd"),
    Setup("keep-grads", keep_grads=True, optimizer="sgd-foreach"),
    Setup("batch-norm", model="mlp", optimizer="adamw-fused"),
]


class Run:
    """One training run; the same Setup and seed give the same bits."""

    def __init__(self, setup: Setup, seed: int = 3) -> None:
        torch.manual_seed(seed)
        self.setup = setup
        if setup.model == "mlp":
            self.model: nn.Module = Perceptron()
        else:
            self.model = GPT(setup.fused, setup.tied, setup.dropout, setup.recompute)
        if setup.half:
            self.model.bfloat16()
        kind, _, form = setup.optimizer.partition("-")
        options = {"foreach": form == "foreach", "fused": form == "fused"}
        if kind == "sgd":
            self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
                self.model.parameters(), lr=0.05, momentum=0.9, **options
            )
        else:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, **options)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=setup.scaler)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.setup.autocast):
            logits = self.model(tokens)
            return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100)

    def step(self) -> None:
        setup = self.setup
        tokens, targets = torch.randint(0, 48, (6, 12)), torch.randint(0, 48, (6, 12))
        if setup.keep_grads:
            self.optimizer.zero_grad(set_to_none=False)
        for part in range(setup.accumulate):
            rows = slice(part * 6 // setup.accumulate, (part + 1) * 6 // setup.accumulate)
            loss = self.loss(tokens[rows], targets[rows]) / setup.accumulate
            self.scaler.scale(loss).backward()
        if setup.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), setup.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if not setup.keep_grads:
            self.optimizer.zero_grad()

    def weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}
