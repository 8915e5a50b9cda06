"""A5. Recomputing activations gives the same bits, unless the recomputation draws another dropout mask."""

import copy

import torch
import torch.nn.functional as F
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch.utils.checkpoint import checkpoint


@scenario(
    "A5 checkpointing",
    "activation checkpointing against storing, with the generator's state kept or not (OLMo-core 828)",
    size=(16, 48),
    same_mask=TYPE_I,
    other_mask=TYPE_II,
    suspect={"other_mask": r"F\.dropout"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    stored = MLP(size).to(dtype)
    recomputed = copy.deepcopy(stored)
    x = normal(seed, size, size, dtype=dtype)

    def block(model: MLP, x: torch.Tensor) -> torch.Tensor:
        return model.fc_2(F.dropout(torch.tanh(model.fc_1(x)), 0.25))

    def target() -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        y = checkpoint(block, recomputed, x, use_reentrant=False, preserve_rng_state=variant == "same_mask")
        loss = (y * y).mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(recomputed)}

    def reference() -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        y = block(stored, x)
        loss = (y * y).mean()
        loss.backward()
        return {"loss": loss.detach(), **gradients(stored)}

    return target, reference
