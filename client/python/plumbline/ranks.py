"""Which ranks a run has, and what they agree on without waiting for each other."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from typing import NamedTuple

import torch

from .errors import PlumblineError

RANKS_MAX = 64  # Judged together.


class Ranks(NamedTuple):
    """The ranks of a run that are judged together."""

    of_run: int
    here: tuple[int, ...] = ()  # Those that stream to one daemon, ascending; empty: all.


def judged_ranks(of_run: int | None, here: Iterable[int] | None, rank: int | None, pairs: bool) -> Ranks:
    """What watch() was told, or else what the process group and its launcher say. pairs: the run is compared with
    another, which only a run is whose ranks all stream to one daemon. Raises PlumblineError."""
    if of_run is not None and of_run < 1:
        raise PlumblineError(f"ranks: expected 1 or more, found {of_run}")
    if here is None:
        return _by_launcher(own_rank() if rank is None else rank, pairs) if of_run is None else Ranks(of_run)
    of_run = _world_size() if of_run is None else of_run
    if of_run == 1:
        raise PlumblineError("ranks_here: expected a run of several ranks (ranks, or torch.distributed initialised)")
    numbers = tuple(sorted(set(here)))
    if not numbers:
        raise PlumblineError("ranks_here: expected one rank or more, found none")
    return Ranks(of_run, () if numbers == tuple(range(of_run)) else numbers)


def _world_size() -> int:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    return torch.distributed.get_world_size()


def _by_launcher(rank: int, pairs: bool) -> Ranks:
    """All ranks where they run on one node; of several nodes those of this one, which its daemon judges. torchrun gives
    the ranks of a node numbers that follow each other, and says how many they are and which of them this is."""
    size = _world_size()
    local, place = os.environ.get("LOCAL_WORLD_SIZE", ""), os.environ.get("LOCAL_RANK", "")
    if local in ("", str(size)):
        return Ranks(size if size <= RANKS_MAX else 1)
    if size == 1 or pairs or not (local.isdecimal() and place.isdecimal()):
        return Ranks(1)
    first, count = rank - int(place), int(local)
    fits = int(place) < count <= RANKS_MAX and first >= 0 and first + count <= size
    return Ranks(size, tuple(range(first, first + count))) if fits else Ranks(1)


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
