"""Hooks of DistributedDataParallel that compress gradients, and unpack them in what is called once a collective has
ended: in another thread, or at once. Two processes, judged together."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gloo_ranks import results_of
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import plumbline
from plumbline.disabled import Disabled

RANKS, STEPS = 2, 4
OUTCOMES = {
    "bf16": "TYPE_I",
    "fp16": "TYPE_I",
    "low_rank": "TYPE_I",
    "late": "TYPE_I",
    "late_corrupted": "TYPE_II",
}


class Late:
    """A hook that compresses. On rank 0 the sum is there only after what follows it was asked for."""

    def __init__(self, rank: int, run: str) -> None:
        self._rank, self._run = rank, run
        self._store = dist.distributed_c10d._get_default_store()
        self._buckets = 0
        self.elsewhere = 0  # Counts buckets that were unpacked by another thread.

    def reduce(self, _, bucket):  # type: ignore[no-untyped-def] # PyTorch reads the annotations.
        buffer, key = bucket.buffer(), f"{self._run}/{self._buckets}"
        caller = threading.get_ident()
        self._buckets += 1

        def unpack(future: Any) -> torch.Tensor:
            buffer.copy_(future.value()[0])
            if self._run == "late_corrupted":  # Where no operation is.
                ctypes.cast(buffer.data_ptr(), ctypes.POINTER(ctypes.c_float))[0] += 1.0
            self.elsewhere += threading.get_ident() != caller
            return buffer

        half = buffer.to(torch.bfloat16).div_(RANKS)
        if self._rank == 1:
            self._store.wait([key])
        unpacked = dist.all_reduce(half, async_op=True).get_future().then(unpack)
        if self._rank == 0:
            self._store.set(key, "")
        return unpacked


def register(model: DistributedDataParallel, rank: int, run: str) -> Late:
    hooks: dict[str, tuple[Any, Callable[..., Any]]] = {
        "bf16": (None, default_hooks.bf16_compress_hook),
        "fp16": (None, default_hooks.fp16_compress_hook),
        "low_rank": (
            powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2, min_compression_rate=1),
            powerSGD_hook.powerSGD_hook,
        ),
    }
    late = Late(rank, run)
    model.register_comm_hook(*hooks.get(run, (None, late.reduce)))
    return late


def train(rank: int, server: str, run: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)))
    late = register(model, rank, run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    options = {"job": "hooks", "run": run, "every": 1, "on_type_ii": "ignore"}
    with plumbline.watch(model, optimizer, server, **options) if server else Disabled() as audit:
        for step in range(STEPS):
            x = torch.randn(6, 32, generator=torch.Generator().manual_seed(step * RANKS + rank))
            with audit.step():
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert audit.flush()
        return {
            "elsewhere": late.elsewhere,
            "missed": audit.missed(),
            "verdicts": [(v.verdict, v.cause, v.explain()) for v in audit.verdicts()],
            "opaque": {name for v in audit.verdicts() for name in v.coverage.opaque_names},
            "weights": [parameter.detach().numpy().copy() for parameter in model.parameters()],
        }


def train_unseen(rank: int, server: str) -> tuple[int, set[str]]:
    """The steps that were missed, of the hook that is built into C++, and why."""
    model = DistributedDataParallel(nn.Linear(32, 8))
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    with plumbline.watch(model, optimizer, server, job="hooks", run="unseen", every=1) as audit:
        for _ in range(STEPS):
            with audit.step():
                model(torch.ones(6, 32)).square().mean().backward()
                optimizer.step()
        assert not audit.verdicts()
        return audit.missed(), {str(error) for error in audit.errors().values()}


def work(rank: int, server: str, meeting: str, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    ended = {run: train(rank, server, run) for run in OUTCOMES}
    plain = {run: train(rank, "", run)["weights"] for run in ("bf16", "low_rank")}
    results.put((rank, ended, plain, train_unseen(rank, server)))
    dist.barrier()
    dist.destroy_process_group()


def test_hooks_that_compress(tmp_path: Path) -> None:
    ended = results_of(work, RANKS, tmp_path)
    for rank, runs, plain, (missed, why) in ended:
        assert missed == STEPS and len(why) == 1 and "FP16_COMPRESS" in why.pop()
        for run, outcome in OUTCOMES.items():
            found = runs[run]
            assert found["missed"] == 0 and len(found["verdicts"]) == STEPS, run
            for step, (verdict, cause, words) in enumerate(found["verdicts"]):
                assert verdict == outcome, (run, step, words)
                assert cause == ("ROUNDING" if outcome == "TYPE_I" else "EXECUTION"), (run, step, words)
            # The second step arranges the buckets anew, in memory that C++ fills.
            assert found["opaque"] <= {"plumbline::out_of_sight"}, (run, found["opaque"])
            assert found["elsewhere"] > 0 or rank == 1 or not run.startswith("late"), run
        for run, weights in plain.items():  # Watching changes no bit.
            assert all((a == b).all() for a, b in zip(weights, runs[run]["weights"], strict=True)), run
