"""Whether the ranks of a run hold the same parameters: DistributedDataParallel promises it; what takes that back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from .storages import PARAMETER, STATE

# Hooks of PyTorch's own after which all ranks have the same gradients, bit for bit. Of any other, such as those that
# reduce over a part of the ranks, nothing is known.
_HOOKS = {
    f"torch.distributed.algorithms.ddp_comm_hooks.{name}"
    for name in (
        "default_hooks.allreduce_hook",
        "default_hooks.bf16_compress_hook",
        "default_hooks.fp16_compress_hook",
        "powerSGD_hook.batched_powerSGD_hook",
        "powerSGD_hook.powerSGD_hook",
        "quantization_hooks.quantization_perchannel_hook",
        "quantization_hooks.quantization_pertensor_hook",
    )
}
_UNSEEN = (
    "DistributedDataParallel's built-in FP16_COMPRESS unpacks gradients out of sight: "
    "default_hooks.fp16_compress_hook, registered by register_comm_hook, does the same in sight"
)


class Replicas:
    """Of one rank. For the training thread."""

    def __init__(self, models: Iterable[torch.nn.Module], optimizers: Iterable[Any], ranks: int) -> None:
        """`models`: as the user gave them. `ranks`: how many the run has."""
        given = [getattr(model, "_orig_mod", model) for model in models]
        self._models = [model for model in given if isinstance(model, DistributedDataParallel)]
        alike = {parameter for model in self._models for parameter in _alike(model, ranks)}
        watched = {parameter for model in given for parameter in model.parameters()}
        watched.update(parameter for optimizer in optimizers for parameter in _parameters(optimizer))
        # Of the run, for which all ranks must say the same.
        self.promised = ranks > 1 and bool(watched) and watched <= alike and all(map(_same_gradients, self._models))
        self._broken = False
        self._hook = register_optimizer_step_post_hook(self._stepped) if self.promised else None

    def close(self) -> None:
        self._models.clear()
        if self._hook is not None:
            self._hook.remove()

    def settle(self, records: list[tuple[Any, ...]]) -> None:
        """Once the promise was taken back, a step's parameters are the rank's own: state, which nobody compares over
        ranks."""
        self._broken = self._broken or not all(map(_same_gradients, self._models))
        if self.promised and self._broken:
            for index, record in enumerate(records):
                if record[0] == "leaf" and record[4] == PARAMETER:
                    records[index] = (*record[:4], STATE, *record[5:])

    def unseen_hook(self) -> tuple[str, str]:
        """A short reason and a sentence, where steps cannot be followed: they compress gradients in C++, which unpacks
        them in a thread of its own. Empty: they can."""
        hooks = [str(model._get_ddp_logging_data().get("comm_hook", "")) for model in self._models]
        if any("FP16_COMPRESS" in hook for hook in hooks):
            return "unseen_hook", _UNSEEN
        return "", ""

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """Gradients of the last backward alone were not reduced (no_sync, or the attribute that it sets), and yet they
        go into the parameters; of several backwards the last one that is reduced takes all with it. What a forward
        pass without gradients leaves looks alike: then nobody is accused either."""
        if self._broken:
            return
        apart = [model for model in self._models if not model.require_forward_param_sync]
        if apart:
            stepped = set(_parameters(optimizer))
            self._broken = any(not stepped.isdisjoint(model.parameters()) for model in apart)


def _parameters(optimizer: Any) -> Iterable[torch.Tensor]:
    return (parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"])


def _alike(model: DistributedDataParallel, ranks: int) -> list[torch.Tensor]:
    """Parameters of the model that the whole world reduces."""
    if not torch.distributed.get_world_size(model.process_group) == torch.distributed.get_world_size() >= ranks:
        return []
    delayed = set(getattr(model, "_delay_all_reduce_params", ()))  # Ignored by the reducer, but reduced by a hook.
    named = model.module.named_parameters(remove_duplicate=False)
    ignored = {parameter for name, parameter in named if name in model.parameters_to_ignore} - delayed
    return [parameter for parameter in model.parameters() if parameter not in ignored]


def _same_gradients(model: DistributedDataParallel) -> bool:
    """Whether what reduces the model's gradients gives all ranks the same."""
    return all(_reduces(hook, state) for hook, state in getattr(model, "_comm_hooks", ()))


def _reduces(hook: Any, state: Any) -> bool:
    if f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', '')}" not in _HOOKS:
        return False
    group = getattr(state, "process_group", state)
    if group is None:
        return True
    is_group = isinstance(group, torch.distributed.ProcessGroup)
    return is_group and torch.distributed.get_world_size(group) == torch.distributed.get_world_size()
