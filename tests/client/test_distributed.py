"""Data parallelism over two processes: each rank is audited by itself, its collectives are opaque."""

import contextlib
import multiprocessing
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import plumbline
from plumbline import daemon

RANKS, STEPS = 2, 3


def train(rank: int, server: str, run: str, reference: str | None, by_hand: bool, foreach: bool) -> dict[str, Any]:
    """What a rank ends with; no server: not audited."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    outer = model if by_hand else nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=foreach)
    with contextlib.ExitStack() as stack:
        audit = None
        if server:
            audit = plumbline.watch(outer, optimizer, server, job="ddp", run=run, reference=reference, every=1)
            stack.enter_context(audit)
        for step in range(STEPS):
            x = torch.randn(6, 8, generator=torch.Generator().manual_seed(RANKS * step + rank))
            with audit.step() if audit is not None else contextlib.nullcontext():
                outer(x).square().mean().backward()
                if by_hand:
                    for parameter in model.parameters():
                        dist.all_reduce(parameter.grad)
                        parameter.grad /= RANKS
                optimizer.step()
                optimizer.zero_grad()
        result: dict[str, Any] = {"weights": [p.detach().numpy().copy() for p in model.parameters()]}
        if audit is not None:
            assert audit.flush()
            result["missed"] = audit.missed()
            result["verdicts"] = [(v.verdict, list(v.coverage.opaque_names), v.explain()) for v in audit.verdicts()]
        return result


def work(rank: int, server: str, meeting: str, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    runs = {
        "plain": ("", None, False, True),
        "ddp": (server, None, False, True),
        "loops": (server, "ddp", False, False),
        "hand": (server, "ddp", True, True),
    }
    results.put((rank, {run: train(rank, s, run, *options) for run, (s, *options) in runs.items()}))
    dist.destroy_process_group()


def test_two_ranks(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with daemon.private() as server:
        ranks = [
            context.Process(target=work, args=(rank, server, str(tmp_path / "meeting"), results))
            for rank in range(RANKS)
        ]
        for process in ranks:
            process.start()
        by_rank = dict(results.get(timeout=120) for _ in ranks)
        for process in ranks:
            process.join(60)
    for runs in by_rank.values():
        for run in ("ddp", "loops", "hand"):
            assert runs[run]["missed"] == 0 and len(runs[run]["verdicts"]) == STEPS
            for _, names, words in runs[run]["verdicts"]:
                # The second step arranges the buckets anew, in memory that C++ fills.
                assert any(name.startswith("c10d::allreduce_") for name in names), words
                assert all(name.startswith(("c10d::", "plumbline::out_of_sight")) for name in names), words
        for run in ("ddp", "loops"):
            assert all(outcome == "TYPE_I" for outcome, _, _ in runs[run]["verdicts"]), runs[run]["verdicts"]
        # Buckets against single tensors: the collectives have no counterparts, and so accuse nobody.
        assert all(outcome == "INCONCLUSIVE" for outcome, _, _ in runs["hand"]["verdicts"]), runs["hand"]["verdicts"]
        for plain, watched in zip(runs["plain"]["weights"], runs["ddp"]["weights"], strict=True):
            assert (plain == watched).all()
    assert all((a == b).all() for a, b in zip(by_rank[0]["ddp"]["weights"], by_rank[1]["ddp"]["weights"], strict=True))
