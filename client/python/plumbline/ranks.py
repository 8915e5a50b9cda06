"""Which ranks a run has, and what they agree on without waiting for each other."""

from __future__ import annotations

import os
import uuid

import torch

RANKS_MAX = 64  # Judged together.


def replicates(model: torch.nn.Module) -> bool:
    """Whether the model stands for one copy a rank, all alike."""
    model = getattr(model, "_orig_mod", model)
    return type(model).__name__ == "DistributedDataParallel"


def ranks_here() -> int:
    """World size, where all ranks can be expected to stream to one daemon."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    size = torch.distributed.get_world_size()
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return size if size <= RANKS_MAX and local in ("", str(size)) else 1


def agreed_run(project: str, job: str) -> str:
    """A fresh name that all ranks agree on: the first one's, by the process group's store. Waits for nobody."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return ""
    number = _watches[project, job] = _watches.get((project, job), 0) + 1
    store = torch.distributed.distributed_c10d._get_default_store()
    return store.compare_set(f"plumbline/{project}/{job}/{number}", "", uuid.uuid4().hex[:12]).decode()


_watches: dict[tuple[str, str], int] = {}  # Of this process, by project and job.


def own_rank() -> int:
    """By torch.distributed, or by what its launcher said."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0") or 0)
