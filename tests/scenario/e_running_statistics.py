"""Running statistics of a batch norm, by the framework and by hand. The variance that is kept is divided by n - 1, the
one that normalises by n; the wrong one of them changes the state alone."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

MOMENTUM, EPS = 0.1, 1e-5


@scenario(
    "running statistics",
    "running statistics of a batch norm by hand",
    size=(8, 32),
    by_hand=TYPE_I,
    biased=TYPE_II,
    suspect={"biased": r"var|batch_norm"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x = 3 + normal(seed, size, 6, dtype=dtype)
    mean, var = normal(seed + 1, 6, dtype=dtype), 1 + normal(seed + 2, 6, dtype=dtype).square()
    states = [(mean.clone(), var.clone()) for _ in range(2)]

    def target() -> dict[str, Tensor]:
        mean, var = states[0]
        m, v = x.mean(0), x.var(0, unbiased=False)
        mean.add_(MOMENTUM * (m - mean))
        var.mul_(1 - MOMENTUM).add_(MOMENTUM * (v if variant == "biased" else v * (size / (size - 1))))
        return {"out": (x - m) * torch.rsqrt(v + EPS), "state:mean": mean, "state:var": var}

    def reference() -> dict[str, Tensor]:
        mean, var = states[1]
        out = F.batch_norm(x, mean, var, training=True, momentum=MOMENTUM, eps=EPS)
        return {"out": out, "state:mean": mean, "state:var": var}

    return target, reference
