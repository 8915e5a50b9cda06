"""What the user's own models and optimizers are wrapped in."""

from __future__ import annotations

from typing import Any

import torch


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The user's own model inside of torch.compile and data-parallel wrappers, so that names agree between runs."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = model.module
        if not isinstance(inner, torch.nn.Module):
            return model
        model = inner


def unwrapped_optimizer(optimizer: Any) -> Any:
    """The optimizer that steps inside of a wrapper, as accelerate's and Lightning's are: it has the state and the
    hooks."""
    for _ in range(8):
        inner = getattr(optimizer, "optimizer", None) or getattr(optimizer, "_optimizer", None)
        if not isinstance(inner, torch.optim.Optimizer):
            break
        optimizer = inner
    return optimizer
