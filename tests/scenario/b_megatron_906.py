"""Megatron-LM 906: each rank's loss is multiplied by the size of the context-parallel group, but gradients are averaged
over the data-parallel group alone: twice too large with two context ranks."""

import copy

import torch
from models import LanguageModel, cross_entropy, gradients, sentences
from scenario import TYPE_I, TYPE_II, Program, scenario

DATA_RANKS, CONTEXT_RANKS = 2, 2


@scenario(
    "Megatron-LM 906",
    "loss times context-parallel size",
    size=(8, 24),
    bug=TYPE_II,
    fixed=TYPE_I,
    unplaced={"bug": "Any of three factors may be changed to make it right; the programs part at a part's loss."},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    whole = LanguageModel().to(dtype)
    ranks = [copy.deepcopy(whole) for _ in range(DATA_RANKS * CONTEXT_RANKS)]
    time = CONTEXT_RANKS * (size // CONTEXT_RANKS)
    inputs, targets = sentences(2 * DATA_RANKS, time, seed, uneven=False)
    averaged = DATA_RANKS if variant == "bug" else DATA_RANKS * CONTEXT_RANKS

    def target() -> dict[str, torch.Tensor]:
        pending = list(ranks)
        by_rank = []
        for x, y in zip(inputs.chunk(DATA_RANKS), targets.chunk(DATA_RANKS), strict=True):
            for part_x, part_y in zip(x.chunk(CONTEXT_RANKS, 1), y.chunk(CONTEXT_RANKS, 1), strict=True):
                model = pending.pop()
                loss = cross_entropy(model, part_x, part_y, "sum") / y.numel()
                (loss * CONTEXT_RANKS).backward()
                by_rank.append({"loss": loss.detach() * CONTEXT_RANKS, **gradients(model)})
        total = {name: torch.stack([taps[name] for taps in by_rank]).sum(0) / averaged for name in by_rank[0]}
        return {**total, "loss": total["loss"] * averaged / len(by_rank)}  # Logged right, trained wrong.

    def reference() -> dict[str, torch.Tensor]:
        loss = cross_entropy(whole, inputs, targets)
        loss.backward()
        return {"loss": loss.detach(), **gradients(whole)}

    return target, reference
