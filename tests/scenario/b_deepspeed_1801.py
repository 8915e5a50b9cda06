"""DeepSpeed 1801: under tensor parallelism each rank clips by the norm of its own shards, so that the copies of a
replicated norm weight are scaled otherwise on each rank and drift apart."""

import copy

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import nn

RANKS, WIDTH, LIMIT, RATE = 2, 16, 0.1, 0.5


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Parameter(torch.ones(WIDTH))
        self.fc = nn.Parameter(torch.randn(WIDTH, WIDTH) / 4)


@scenario(
    "DeepSpeed 1801",
    "clipping by each rank's own norm",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"clip\("},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    whole = Block().to(dtype)
    copied = copy.deepcopy(whole)
    x = normal(seed, size, WIDTH, dtype=dtype)

    def gradients(block: Block) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        loss = (F.layer_norm(x, (WIDTH,)) * block.norm @ block.fc.T).square().mean()
        norm, fc = torch.autograd.grad(loss, [block.norm, block.fc])
        return loss.detach(), norm, fc

    def clip(norm: torch.Tensor) -> torch.Tensor:
        return torch.clamp(LIMIT / (norm + 1e-6), max=1.0)

    def target() -> dict[str, torch.Tensor]:
        loss, norm, fc = gradients(copied)
        shards = fc.chunk(RANKS)  # Rows of the product, one part a rank.
        if variant == "bug":
            factors = [clip((shard.square().sum() + norm.square().sum()).sqrt()) for shard in shards]
        else:
            total = sum(shard.square().sum() for shard in shards) + norm.square().sum()
            factors = [clip(total.sqrt())] * RANKS
        taps = {"loss": loss}
        for rank, (factor, shard) in enumerate(zip(factors, shards, strict=True)):
            taps[f"norm:{rank}"] = copied.norm.detach() - RATE * (factor * norm)
            taps[f"fc:{rank}"] = copied.fc.detach().chunk(RANKS)[rank] - RATE * (factor * shard)
        return taps

    def reference() -> dict[str, torch.Tensor]:
        loss, norm, fc = gradients(whole)
        factor = clip((norm.square().sum() + fc.square().sum()).sqrt())
        taps = {"loss": loss}
        for rank in range(RANKS):
            taps[f"norm:{rank}"] = whole.norm.detach() - RATE * (norm * factor)
            taps[f"fc:{rank}"] = (whole.fc.detach() - RATE * (fc * factor)).chunk(RANKS)[rank]
        return taps

    return target, reference
