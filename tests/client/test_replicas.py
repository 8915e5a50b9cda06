"""Ranks that hold the same parameters by DistributedDataParallel's promise, which must stay equal, and those whose
parameters may differ, of which nobody is accused. Two processes, judged together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gloo_ranks import results_of
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks
from torch.nn.parallel import DistributedDataParallel

import plumbline

RANKS, STEPS = 2, 3


@dataclass
class Case:
    """One run of both ranks."""

    run: str
    every: int = 1
    skips: bool = False  # Rank 1 leaves the optimizer's step out: replicas that must stay equal do not.
    cause: str = ""  # Of every audited step's verdict, which is TYPE_II then.
    promise: bool = True  # The parameters stand for replicas.


CASES = [
    Case("plain"),
    Case("plain_skips", skips=True, cause="INVARIANT"),
    Case("own_group", promise=False),
    Case("ignored", promise=False),
    Case("beside", promise=False),
    Case("no_sync"),
    Case("flag"),
    Case("unseen_no_sync", every=2),
    Case("accumulates"),
    Case("accumulates_skips", skips=True, cause="INVARIANT"),
    Case("flag_accumulates_skips", skips=True, cause="INVARIANT"),
    Case("known_hook"),
    Case("known_hook_skips", skips=True, cause="INVARIANT"),
    Case("no_hook", promise=False),
    Case("late_no_hook"),
]


def backward(model: nn.Module, rank: int, step: int) -> None:
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(step * RANKS + rank))
    model(x).square().mean().backward()


def micro_batches(case: Case, step: int) -> list[bool]:
    """Of each whether its gradients are reduced."""
    if "accumulates" in case.run:
        return [False, True]
    return [case.run not in ("no_sync", "flag") and not (case.run == "unseen_no_sync" and step == 1)]


def train(rank: int, server: str, case: Case, own: Any) -> dict[str, Any]:
    torch.manual_seed(rank if case.run == "own_group" else 0)
    inner = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    if case.run == "ignored":
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(inner, ["0.bias"])
    model = DistributedDataParallel(inner, process_group=own if case.run == "own_group" else None)
    if case.run.startswith("known_hook"):
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    elif case.run == "no_hook":
        model.register_comm_hook(None, debugging_hooks.noop_hook)
    watched, parameters = [model], list(model.parameters())
    if case.run == "beside":
        watched.append(nn.Linear(8, 1))
        parameters += watched[1].parameters()
    optimizer = torch.optim.SGD(parameters, lr=0.125, momentum=0.5)
    options = {"job": "replicas", "run": case.run, "every": case.every, "on_type_ii": "ignore"}
    with plumbline.watch(watched, optimizer, server, **options) as audit:
        promised = audit._replicas.promised
        if case.run == "late_no_hook":
            model.register_comm_hook(None, debugging_hooks.noop_hook)
        for step in range(STEPS):
            with audit.step():
                for synced in micro_batches(case, step):
                    if synced:
                        backward(model, rank, step + STEPS)
                    elif case.run.startswith("flag"):
                        model.require_backward_grad_sync = False
                        backward(model, rank, step)
                        model.require_backward_grad_sync = True
                    else:
                        with model.no_sync():
                            backward(model, rank, step)
                if case.run == "beside":
                    backward(watched[1], rank, step)
                if not (case.skips and rank == 1):
                    optimizer.step()
                optimizer.zero_grad()
        assert audit.flush()
        return {
            "promised": promised,
            "missed": audit.missed(),
            "equal": inner[0].bias.detach().numpy().copy(),
            "verdicts": [(v.verdict, v.cause, v.explain()) for v in audit.verdicts()],
        }


def work(rank: int, server: str, meeting: str, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    own = [dist.new_group([one]) for one in range(RANKS)][rank]
    results.put((rank, {case.run: train(rank, server, case, own) for case in CASES}))
    dist.barrier()
    dist.destroy_process_group()


def test_replicas(tmp_path: Path) -> None:
    by_rank = dict(results_of(work, RANKS, tmp_path))
    for case in CASES:
        for runs in by_rank.values():
            ended = runs[case.run]
            assert ended["promised"] == case.promise, case
            assert ended["missed"] == 0 and len(ended["verdicts"]) == len(range(0, STEPS, case.every)), case
            for outcome, cause, words in ended["verdicts"]:
                assert outcome == ("TYPE_II" if case.cause else "TYPE_I"), (case, words)
                assert cause == (case.cause or "ROUNDING"), (case, words)
        # Programs whose replicas differ are such.
        biases = [runs[case.run]["equal"] for runs in by_rank.values()]
        alike = case.run in ("plain", "beside", "accumulates", "known_hook")
        assert (biases[0] == biases[1]).all() == alike, case
