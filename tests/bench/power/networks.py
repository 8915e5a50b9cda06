"""Transformers of torch.nn with random weights: GPT-like (deploy/lib/gpt.py) and Llama-like, of any depth."""

import torch
import torch.nn.functional as F
from gpt import GPT
from torch import Tensor, nn

WIDTH, HEADS, GROUPS, VOCABULARY, ROWS, TIME = 64, 4, 2, 256, 2, 32


class LlamaBlock(nn.Module):
    """RMS norm, rotary positions, grouped heads, gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.before, self.after = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, GROUPS * size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        frequency = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angle = torch.outer(torch.arange(TIME), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def rotate(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat([-right, left], -1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        y = self.before(x)
        q, k, v = (
            linear(y).view(batch, time, heads, -1).transpose(1, 2)
            for linear, heads in ((self.q, HEADS), (self.k, GROUPS), (self.v, GROUPS))
        )
        k, v = (t.repeat_interleave(HEADS // GROUPS, 1) for t in (self.rotate(k), v))
        mixed = F.scaled_dot_product_attention(self.rotate(q), k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, time, width))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(LlamaBlock() for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def network(kind: str, depth: int) -> nn.Module:
    torch.manual_seed(3)
    if kind == "Llama":
        return Llama(depth)
    return GPT(VOCABULARY, TIME, WIDTH, HEADS, depth)


def batch() -> Tensor:
    return torch.randint(0, VOCABULARY, (ROWS, TIME + 1), generator=torch.Generator().manual_seed(4))


def loss_and_gradient(model: nn.Module, tokens: Tensor, autocast: bool) -> dict[str, Tensor]:
    """The loss and the gradient of the first block's first matrix: as deep as a gradient goes."""
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(
            logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32)), tokens[:, 1:].flatten()
        )
    loss.backward()
    first = next(p for p in model.blocks[0].parameters() if p.dim() == 2)
    return {"loss": loss.detach(), "gradient": first.grad}
