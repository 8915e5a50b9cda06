"""Data parallelism over two processes: the ranks of a run are judged together, from all ranks' inputs."""

import contextlib
import multiprocessing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import plumbline
from plumbline import daemon

RANKS, BATCH, STEPS = 2, 12, 2


@dataclass
class Case:
    """One run of both ranks, and what its verdicts must say."""

    run: str
    reference: str = "whole"
    ddp: bool = True
    foreach: bool = True
    bug: str = ""
    ranks: int | None = None
    outcome: str = "TYPE_I"
    cause: str = ""
    says: str = ""  # Stands in the explanation of the first verdict.


CASES = [
    Case("ddp"),
    Case("loops", reference="ddp", foreach=False),
    Case("by_hand", ddp=False),
    Case("sum_for_mean", ddp=False, bug="sum", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("world_size_twice", bug="twice", outcome="TYPE_II", cause="MATHEMATICS", says="normalisation"),
    Case("dropped", ddp=False, bug="dropped", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("same_shard", bug="same_shard", outcome="TYPE_II", cause="LEAF_MISMATCH", says="no rank was fed this data"),
    Case("local_buffer", bug="local_buffer", outcome="TYPE_II", cause="LEAF_MISMATCH", says="rank1/buffer:scale"),
    Case("rank_skips", reference="", bug="rank_skips", outcome="TYPE_II", cause="INVARIANT", says="0.weight"),
    Case("undeclared", reference="", ddp=False, bug="rank_skips", says="replicas_diverged"),
    Case("alone", reference="", ranks=1, says="c10d::allreduce_"),
]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("scale", torch.tensor([1.5, 0.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * self.scale


def build(foreach: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Scaled()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=foreach)


def batch(step: int) -> torch.Tensor:
    return torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(step))


def train_whole(server: str) -> list[Any]:
    """One process, the whole batch."""
    model, optimizer = build(foreach=True)
    with plumbline.watch(model, optimizer, server, job="ddp", run="whole", every=1, ranks=1) as audit:
        for step in range(STEPS):
            x = batch(step)
            with audit.step():
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert audit.flush()
        return [verdict.verdict for verdict in audit.verdicts()]


def train(rank: int, server: str, case: Case) -> dict[str, Any]:
    """What a rank ends with; no server: not audited."""
    model, optimizer = build(case.foreach)
    outer = nn.parallel.DistributedDataParallel(model, forward_sync_buffers=not case.bug) if case.ddp else model
    if case.bug == "local_buffer" and rank == 1:
        model.scale[0] = 1.25
    with contextlib.ExitStack() as stack:
        audit = None
        if server:
            reference = case.reference or None
            audit = plumbline.watch(
                outer,
                optimizer,
                server,
                job="ddp",
                run=case.run,
                reference=reference,
                keep_trace=case.run == "ddp",
                every=1,
                ranks=case.ranks,
            )
            stack.enter_context(audit)
        for step in range(STEPS):
            x = batch(step).chunk(RANKS)[0 if case.bug == "same_shard" else rank].clone()
            with audit.step() if audit is not None else contextlib.nullcontext():
                loss = outer(x).square().mean()
                (loss / RANKS if case.bug == "twice" else loss).backward()
                if not case.ddp:
                    reduce(model, case.bug, rank)
                if not (case.bug == "rank_skips" and rank == 1):
                    optimizer.step()
                optimizer.zero_grad()
        result: dict[str, Any] = {"weights": [p.detach().numpy().copy() for p in model.parameters()]}
        if audit is not None:
            assert audit.flush()
            result["missed"] = audit.missed()
            result["verdicts"] = [
                (v.verdict, v.cause, v.id, list(v.coverage.opaque_names), v.explain()) for v in audit.verdicts()
            ]
        return result


def reduce(model: nn.Module, bug: str, rank: int) -> None:
    for parameter in model.parameters():
        if bug == "dropped" and rank == 1:
            parameter.grad.zero_()
        dist.all_reduce(parameter.grad)
        if bug != "sum":
            parameter.grad /= RANKS


def work(rank: int, server: str, meeting: str, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    if rank == 0:
        assert train_whole(server) == ["TYPE_I"] * STEPS
    ended = {case.run: train(rank, server, case) for case in CASES}
    ended["plain"] = train(rank, "", CASES[0])
    results.put((rank, ended))
    dist.barrier()
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
        by_rank = dict(results.get(timeout=60) for _ in ranks)
        for process in ranks:
            process.join(60)
    for case in CASES:
        for rank, runs in by_rank.items():
            ended = runs[case.run]
            assert ended["missed"] == 0 and len(ended["verdicts"]) == STEPS, case
            for step, (outcome, cause, name, opaque, words) in enumerate(ended["verdicts"]):
                assert outcome == case.outcome, (case, words)
                assert not case.cause or cause == case.cause, (case, words)
                assert name == f"default/ddp/{case.run}/{rank if case.ranks == 1 else 0}/{step}"
                # The second step arranges the buckets anew, in memory that C++ fills.
                assert case.ranks == 1 or set(opaque) <= {"plumbline::out_of_sight"}, (case, words)
            assert case.says in ended["verdicts"][0][4], (case, ended["verdicts"][0][4])
        if case.ranks is None:
            assert by_rank[0][case.run]["verdicts"] == by_rank[1][case.run]["verdicts"]
    for plain, watched in zip(by_rank[0]["plain"]["weights"], by_rank[0]["ddp"]["weights"], strict=True):
        assert (plain == watched).all()
    assert all((a == b).all() for a, b in zip(by_rank[0]["ddp"]["weights"], by_rank[1]["ddp"]["weights"], strict=True))
