"""Small models and data that several scenarios share."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IGNORE = -100
VOCABULARY = 32


class LanguageModel(nn.Module):
    """Embedding, one hidden layer, logits; no attention, so that it stays quick."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.hidden = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(2 * width)
        self.head = nn.Linear(2 * width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(F.gelu(self.hidden(self.embed(tokens)))))


class MLP(nn.Module):
    def __init__(self, width: int = 32, out: int = 8) -> None:
        super().__init__()
        self.fc_1 = nn.Linear(width, 2 * width)
        self.fc_2 = nn.Linear(2 * width, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc_2(F.relu(self.fc_1(x)))


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers that are the same in every dtype: drawn in fp32, then converted."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def sentences(rows: int, time: int, seed: int, uneven: bool = True) -> tuple[Tensor, Tensor]:
    """Inputs and targets (rows, time); with `uneven`, row i keeps only its first tokens, the first row the fewest."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randint(0, VOCABULARY, (rows, time), generator=draw)
    targets = torch.randint(0, VOCABULARY, (rows, time), generator=draw)
    if uneven:
        for row in range(rows):
            targets[row, max(1, time * (row + 1) // rows) :] = IGNORE
    return inputs, targets


def cross_entropy(model: nn.Module, inputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction=reduction)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {f"grad:{name}": p.grad for name, p in model.named_parameters() if p.grad is not None}


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {f"weight:{name}": p.detach() for name, p in model.named_parameters()}


def hazards(verdict: Any) -> dict[str, Any]:
    """The verdict's hazards by kind."""
    return {hazard.kind: hazard for hazard in verdict.hazards}
