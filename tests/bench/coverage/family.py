"""What a family of models is to the coverage report: a model, a batch, a loss and an optimizer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = dict[str, Tensor]  # Rows first in every tensor.
MakeOptimizer = Callable[[Iterable[nn.Parameter], bool], torch.optim.Optimizer]

ROWS, TIME, VOCABULARY = 8, 12, 40


@dataclass(frozen=True)
class Family:
    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    loss: Callable[[nn.Module, Batch], Tensor]  # A mean over rows.
    optimizer: MakeOptimizer  # Of parameters and whether to update them by lists (foreach).
    splits: bool = True  # Rows are independent: the mean over the batch is that of the halves' means.


def token_ids(draw: torch.Generator, time: int = TIME, vocabulary: int = VOCABULARY) -> Tensor:
    return torch.randint(0, vocabulary, (ROWS, time), generator=draw)


def tokens(draw: torch.Generator) -> Batch:
    return {"input_ids": token_ids(draw, TIME + 1)}


def next_token_loss(model: nn.Module, batch: Batch) -> Tensor:
    ids = batch["input_ids"]
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


def labelled_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross entropy of the logits against `labels`, which the model does not see."""
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    output = model(**inputs)
    logits = output if isinstance(output, Tensor) else output.logits
    return F.cross_entropy(logits.flatten(0, -2), batch["labels"].flatten())
