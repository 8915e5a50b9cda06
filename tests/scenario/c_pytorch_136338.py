"""pytorch 136338: a network's output for one sample depends on how many others are in the batch, in fp32."""

import torch
from models import MLP, normal
from scenario import TYPE_I, Program, scenario


@scenario("pytorch 136338", "batch against slice, fp32", size=(128, 384), benign=TYPE_I)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    network = MLP(size, size).to(dtype)
    x = normal(seed, 16, size, dtype=dtype)

    def target() -> dict[str, torch.Tensor]:
        with torch.no_grad():
            out = network(x)[3:5]
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, torch.Tensor]:
        with torch.no_grad():
            out = network(x[3:5])
        return {"loss": out.square().mean(), "out": out}

    return target, reference
