"""h2o4gpu 362: sums come out otherwise each time, as atomics add in any order."""

import torch
from models import normal
from scenario import TYPE_I, Program, scenario


@scenario("h2o4gpu 362", "a sum in another order", size=(1000, 20000), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    count = 50 * (size // 50)
    x = normal(seed, count, dtype=dtype) * 10
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))

    def target() -> dict[str, torch.Tensor]:
        return {"loss": x[order].view(50, -1).sum(1).sum()}

    def reference() -> dict[str, torch.Tensor]:
        return {"loss": x.sum()}

    return target, reference
