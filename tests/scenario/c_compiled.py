"""A compiled training step against the eager one: fused kernels keep in fp32 what the program says is stored in bf16.
The compiler is Inductor where PLUMBLINE_SCENARIO_COMPILER names it (it takes minutes); otherwise its graphs run as they
are, with a cast to bf16 that lies between two operations elided, as fusion does."""

import copy
import os
from collections.abc import Callable
from typing import Any

import torch
from models import LanguageModel, cross_entropy, gradients, sentences
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import fx

import plumbline

aten = torch.ops.aten


def fused(module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """Runs a graph with every gelu in fp32, unrounded where a normalisation reads it, as one kernel of both does."""
    graph = module.graph
    for gelu in graph.find_nodes(op="call_function", target=aten.gelu.default):
        if gelu.meta["val"].dtype is not torch.bfloat16:
            continue
        norms = [user for user in gelu.users if user.target is aten.native_layer_norm.default]
        with graph.inserting_before(gelu):
            wide = graph.call_function(aten._to_copy.default, (gelu.args[0],), {"dtype": torch.float32})
            held = graph.call_function(aten.gelu.default, (wide,))
        for norm in norms:
            norm.replace_input_with(gelu, held)
            for user in [user for user in norm.users if user.args[1] == 0]:
                with graph.inserting_after(user):
                    narrow = graph.call_function(aten._to_copy.default, (user,), {"dtype": torch.bfloat16})
                user.replace_all_uses_with(narrow, delete_user_cb=lambda other, narrow=narrow: other is not narrow)
    module.recompile()
    return module.forward


def compiled(model: torch.nn.Module) -> Callable[..., Any]:
    torch._dynamo.reset()
    backend = os.environ.get("PLUMBLINE_SCENARIO_COMPILER") or fused
    return torch.compile(model, backend=plumbline.compile_backend(backend), dynamic=False)


@scenario(
    "torch.compile",
    "fused kernels, casts elided",
    size=(4, 16),
    benign=TYPE_I,
    bf16=TYPE_I,
    other_eps=TYPE_II,
    suspect={"other_eps": r" norm$"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    eager = LanguageModel().to(dtype)
    other = copy.deepcopy(eager)
    if variant == "other_eps":
        other.norm.eps *= 2
    inputs, targets = sentences(size, 12, seed)
    short = variant == "bf16" and dtype == torch.float32

    def step(model: LanguageModel, run: Callable[..., Any]) -> dict[str, torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=short):
            loss = cross_entropy(run, inputs, targets)
        loss.backward()
        # Before the norm, bf16 leaves gradients that small no digit that an envelope could vouch for.
        grads = {"grad:head.weight": model.head.weight.grad} if variant == "bf16" else gradients(model)
        return {"loss": loss.detach(), **grads}

    def target() -> dict[str, torch.Tensor]:
        try:
            return step(other, compiled(other))
        finally:
            torch._dynamo.reset()  # Or this process compiles, and its next run's first step is a trial.

    return target, lambda: step(eager, eager)
