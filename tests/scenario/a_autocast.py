"""A3. A step under autocast with a gradient scaler (matmuls in 16 bits, reductions in fp32; scale, backward, unscale,
inf check, step) against the same step in fp32; and one that forgets to unscale."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from models import MLP, gradients, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario

FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}


def says(variant: str, verdict: Any) -> None:
    if variant in FORMATS:
        assert verdict.contributors[0].place.format == variant, verdict.explain()
        matmuls = [c for c in verdict.contributors if "mm" in c.place.op and c.place.format == variant]
        assert matmuls, verdict.explain()


@scenario(
    "A3 autocast",
    "autocast and gradient scaler against fp32",
    size=(16, 64),
    says=says,
    fp16=TYPE_I,
    bf16=TYPE_I,
    never_unscaled=TYPE_II,
    cause={"fp16": "PRECISION_POLICY", "bf16": "PRECISION_POLICY"},
    suspect={"never_unscaled": r"scaler\.scale"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    mixed = MLP().to(dtype)
    plain = copy.deepcopy(mixed)
    inputs, targets = normal(seed, size, 32, dtype=dtype), torch.arange(size) % 8
    autocast = dtype == torch.float32  # Not for the fp64 oracle.

    def target() -> dict[str, torch.Tensor]:
        optimizer = torch.optim.SGD(mixed.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        with torch.autocast("cpu", FORMATS.get(variant, torch.float16), enabled=autocast):
            loss = F.cross_entropy(mixed(inputs), targets)
        scaler.scale(loss).backward()
        if variant == "never_unscaled":
            optimizer.step()
        else:
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        return {"loss": loss.detach(), **gradients(mixed), **weights(mixed)}

    def reference() -> dict[str, torch.Tensor]:
        loss = F.cross_entropy(plain(inputs), targets)
        loss.backward()
        torch.optim.SGD(plain.parameters(), lr=0.1).step()
        return {"loss": loss.detach(), **gradients(plain), **weights(plain)}

    return target, reference
