"""Work on one part of a buffer while a collective on another part of it is under way. Two processes, judged together:
rank 1 has its share in a collective only once rank 0 has done that work."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gloo_ranks import results_of
from torch import nn

import plumbline

RANKS, STEPS = 2, 2
HALF = 36  # Of the gradients of 8 inputs and outputs.


class Meeting:
    def __init__(self, rank: int, run: str) -> None:
        self._rank, self._run, self._number = rank, run, 0
        self._store = dist.distributed_c10d._get_default_store()

    def rank_0_is_here(self) -> None:
        key = f"{self._run}/{self._number}"
        self._number += 1
        if self._rank == 0:
            self._store.set(key, "")
        else:
            self._store.wait([key])


def writes_elsewhere(rank: int, flat: torch.Tensor, meeting: Meeting) -> None:
    if rank == 1:
        flat[HALF:] /= RANKS
        meeting.rank_0_is_here()
    work = dist.all_reduce(flat[:HALF], async_op=True)
    if rank == 0:
        flat[HALF:] /= RANKS
        meeting.rank_0_is_here()
    work.wait()
    flat[:HALF] /= RANKS
    dist.all_reduce(flat[HALF:])


def two_under_way(rank: int, flat: torch.Tensor, meeting: Meeting) -> None:
    first = dist.all_reduce(flat[:HALF], async_op=True)
    if rank == 1:
        meeting.rank_0_is_here()
    second = dist.all_reduce(flat[HALF:], async_op=True)
    first.wait()
    flat[:HALF] /= RANKS
    if rank == 0:
        meeting.rank_0_is_here()
    second.wait()
    flat[HALF:] /= RANKS


def gathers_beside(rank: int, flat: torch.Tensor, meeting: Meeting) -> None:
    """A collective that only writes its part."""
    both = torch.zeros(3 * HALF)
    if rank == 1:
        meeting.rank_0_is_here()
    work = dist.all_gather_into_tensor(both[HALF:], flat[:HALF].clone(), async_op=True)
    both[:HALF] = flat[:HALF] * 0.5
    if rank == 0:
        meeting.rank_0_is_here()
    work.wait()
    flat[:HALF] = both.view(3, HALF).sum(0)


def corrupted(rank: int, flat: torch.Tensor, meeting: Meeting) -> None:
    two_under_way(rank, flat, meeting)
    work = dist.all_reduce(flat[HALF:], async_op=True)
    flat[:HALF] *= 2
    work.wait()
    if rank == 1:
        ctypes.cast(flat.data_ptr(), ctypes.POINTER(ctypes.c_float))[HALF + 1] += 1.0


PROGRAMS: dict[str, tuple[Callable[..., None], str]] = {
    "writes_elsewhere": (writes_elsewhere, "TYPE_I"),
    "two_under_way": (two_under_way, "TYPE_I"),
    "gathers_beside": (gathers_beside, "TYPE_I"),
    "corrupted": (corrupted, "TYPE_II"),
}


def train(rank: int, server: str, run: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    meeting = Meeting(rank, run)
    options = {"job": "under_way", "run": run, "every": 1, "on_type_ii": "ignore"}
    with plumbline.watch(model, optimizer, server, **options) as audit:
        for step in range(STEPS):
            x = torch.randn(6, 8, generator=torch.Generator().manual_seed(step * RANKS + rank))
            with audit.step():
                model(x).square().mean().backward()
                flat = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
                PROGRAMS[run][0](rank, flat, meeting)
                model.weight.grad.copy_(flat[:64].view(8, 8))
                model.bias.grad.copy_(flat[64:])
                optimizer.step()
                optimizer.zero_grad()
        assert audit.flush()
        return {
            "missed": audit.missed(),
            "verdicts": [(v.verdict, v.explain()) for v in audit.verdicts()],
            "opaque": {name for v in audit.verdicts() for name in v.coverage.opaque_names},
        }


def work(rank: int, server: str, meeting: str, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    results.put((rank, {run: train(rank, server, run) for run in PROGRAMS}))
    dist.barrier()
    dist.destroy_process_group()


def test_parts_of_a_buffer(tmp_path: Path) -> None:
    by_rank = dict(results_of(work, RANKS, tmp_path))
    for runs in by_rank.values():
        for run, (_, outcome) in PROGRAMS.items():
            ended = runs[run]
            assert ended["missed"] == 0 and len(ended["verdicts"]) == STEPS and not ended["opaque"], (run, ended)
            for verdict, words in ended["verdicts"]:
                assert verdict == outcome, (run, words)
