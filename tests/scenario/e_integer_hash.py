"""Buckets by a hash whose products wrap around: modulo 2^64, 2^32 and 2^8 they are the same by any arithmetic of
integers, and not at all as real numbers. Another multiplier is another hash."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn

BUCKETS = 32
MULTIPLIER = {torch.int64: 6364136223846793005, torch.int32: 1664525, torch.uint8: 167}
SHIFT = {torch.int64: 40, torch.int32: 20, torch.uint8: 3}


def whole(x: Tensor, multiplier: int) -> Tensor:
    return ((x * multiplier + 1013) >> SHIFT[x.dtype]) & (BUCKETS - 1)


def in_parts(x: Tensor, multiplier: int) -> Tensor:
    """The product by the multiplier's low bits and the rest, one after the other."""
    bits = SHIFT[x.dtype] // 2
    low = multiplier & ((1 << bits) - 1)
    return (((x * (multiplier - low)) + x * low + 1013) >> SHIFT[x.dtype]) & (BUCKETS - 1)


@scenario(
    "integer hash",
    "a hash whose products wrap around",
    size=(16, 64),
    int64=TYPE_I,
    int32=TYPE_I,
    uint8=TYPE_I,
    other_hash=TYPE_II,
    suspect={"other_hash": r"multiplier|>>|&"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    kind = getattr(torch, variant, torch.int64)
    one, other = nn.Embedding(BUCKETS, 8).to(dtype), nn.Embedding(BUCKETS, 8).to(dtype)
    other.load_state_dict(one.state_dict())
    tokens = torch.randint(1, 200, (4, size), generator=torch.Generator().manual_seed(seed)).to(kind)
    y = normal(seed + 1, 4, size, 8, dtype=dtype)

    def step(table: nn.Embedding, bucket: Tensor) -> dict[str, Tensor]:
        loss = (table(bucket.long()) - y).square().mean()
        loss.backward()
        return {"loss": loss.detach(), "grad:weight": table.weight.grad}

    multiplier = MULTIPLIER[kind]
    return (
        lambda: step(one, in_parts(tokens, 2862933555777941757 if variant == "other_hash" else multiplier)),
        lambda: step(other, whole(tokens, multiplier)),
    )
