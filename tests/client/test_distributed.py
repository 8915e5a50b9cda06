"""Data parallelism over two processes, with replicas and with shards: the ranks of a run are judged together, from all
ranks' inputs."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gloo_ranks import results_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import plumbline

RANKS, BATCH, STEPS = 2, 12, 2


@dataclass
class Case:
    """One run of both ranks, and what its verdicts must say."""

    run: str
    reference: str = "whole"
    # DistributedDataParallel; "by_hand"; "fsdp": fully_shard; "classic": FullyShardedDataParallel; "tensor": layers cut
    # over the ranks.
    style: str = "ddp"
    foreach: bool = True
    half: bool = False  # bf16 weights, gradients and messages.
    bug: str = ""
    ranks: int | None = None
    outcome: str = "TYPE_I"
    cause: str = ""
    since: int = 0  # Step of the bug: TYPE_I before.
    says: str = ""  # Stands in the explanation of that step's verdict.


CASES = [
    Case("ddp"),
    Case("bf16", reference="whole_bf16", half=True),
    Case(
        "bf16_sum",
        reference="whole_bf16",
        style="by_hand",
        half=True,
        bug="sum",
        outcome="TYPE_II",
        cause="MATHEMATICS",
    ),
    Case("loops", reference="ddp", foreach=False),
    Case("by_hand", style="by_hand"),
    Case("sum_for_mean", style="by_hand", bug="sum", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("world_size_twice", bug="twice", outcome="TYPE_II", cause="MATHEMATICS", says="normalisation"),
    Case("dropped", style="by_hand", bug="dropped", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("same_shard", bug="same_shard", outcome="TYPE_II", cause="LEAF_MISMATCH", says="no rank was fed this data"),
    Case("local_buffer", bug="local_buffer", outcome="TYPE_II", cause="LEAF_MISMATCH", says="rank1/buffer:scale"),
    Case("rank_skips", reference="", bug="rank_skips", outcome="TYPE_II", cause="INVARIANT", says="0.weight"),
    Case("undeclared", reference="", style="by_hand", bug="rank_skips", says="replicas_diverged"),
    Case("alone", reference="", ranks=1, says="c10d::allreduce_"),
    Case("sharded", style="fsdp"),
    Case("sharded_again", reference="sharded", style="fsdp", foreach=False),
    Case("sharded_twice", style="fsdp", bug="twice", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("sharded_sum", style="fsdp", bug="sum", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("classic", style="classic"),
    Case("classic_again", reference="sharded", style="classic", foreach=False),
    Case("classic_twice", style="classic", bug="twice", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("tensor", style="tensor"),
    Case("tensor_mixed", style="tensor", bug="mixed", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("shard_skips", style="fsdp", bug="rank_skips", since=1, outcome="TYPE_II", cause="MATHEMATICS"),
]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("scale", torch.tensor([1.5, 0.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * self.scale


def build(foreach: bool, half: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Scaled().to(torch.bfloat16 if half else torch.float32)
    return model, sgd(model, foreach)


def sgd(model: nn.Module, foreach: bool) -> torch.optim.Optimizer:
    """Its numbers are bf16's too: kernels of that type round the others."""
    return torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5, foreach=foreach)


def batch(step: int, half: bool) -> torch.Tensor:
    x = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(step))
    return x.bfloat16() if half else x


def train_whole(server: str, run: str, half: bool) -> list[Any]:
    """One process, the whole batch."""
    model, optimizer = build(foreach=True, half=half)
    with plumbline.watch(model, optimizer, server, job="ddp", run=run, every=1, ranks=1) as audit:
        for step in range(STEPS):
            x = batch(step, half)
            with audit.step():
                model(x).square().mean().backward()
                optimizer.step()
                audit.tap("first", model.layers[0].weight)
                optimizer.zero_grad()
        assert audit.flush()
        return [verdict.verdict for verdict in audit.verdicts()]


def train(rank: int, server: str, case: Case) -> dict[str, Any]:
    """What a rank ends with; no server: not audited."""
    model, optimizer = build(case.foreach, case.half)
    outer = model
    if case.style == "ddp":
        outer = nn.parallel.DistributedDataParallel(model, forward_sync_buffers=not case.bug)
    elif case.style == "classic":
        wrap = ModuleWrapPolicy({nn.Linear})
        outer = FullyShardedDataParallel(
            model, use_orig_params=True, auto_wrap_policy=wrap, device_id=torch.device("cpu")
        )
        optimizer = sgd(outer, case.foreach)
    elif case.style != "by_hand":
        shard(model, case)
        optimizer = sgd(model, case.foreach)
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
                keep_trace=case.run in ("ddp", "sharded"),
                every=1,
                ranks=case.ranks,
            )
            stack.enter_context(audit)
        for step in range(STEPS):
            x = batch(step, case.half)
            if case.style != "tensor":
                x = x.chunk(RANKS)[0 if case.bug == "same_shard" else rank].clone()
            with audit.step() if audit is not None else contextlib.nullcontext():
                loss = outer(x).square().mean()
                (loss / RANKS if case.bug == "twice" else loss).backward()
                if case.style == "by_hand":
                    reduce(model, case.bug, rank)
                if case.bug == "mixed":  # As if the ranks' shards were replicas.
                    dist.all_reduce(model.layers[0].weight.grad.to_local())
                if not (case.bug == "rank_skips" and rank == 1 and step >= case.since):
                    optimizer.step()
                if audit is not None:
                    audit.tap("first", model.layers[0].weight)
                optimizer.zero_grad()
        # Of classic FSDP each rank's own share.
        whole = (p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters())
        result: dict[str, Any] = {"weights": [p.detach().float().numpy().copy() for p in whole]}
        if audit is not None:
            assert audit.flush()
            result["missed"] = audit.missed()
            result["verdicts"] = [
                (v.verdict, v.cause, v.id, list(v.coverage.opaque_names), v.explain()) for v in audit.verdicts()
            ]
        return result


def shard(model: nn.Module, case: Case) -> None:
    """Of the last layer's one row rank 1 has nothing, where rows are cut."""
    if case.style == "tensor":
        mesh = init_device_mesh("cpu", (RANKS,))
        parallelize_module(model.layers, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return
    fully_shard(model.layers[0])
    fully_shard(model)
    if case.bug == "sum":
        for module in (model, model.layers[0]):
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)


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
        assert train_whole(server, "whole", half=False) == ["TYPE_I"] * STEPS
        assert train_whole(server, "whole_bf16", half=True) == ["TYPE_I"] * STEPS
    ended = {case.run: train(rank, server, case) for case in CASES}
    ended["plain"] = train(rank, "", CASES[0])
    for run in ("sharded", "classic"):
        ended[f"{run}_plain"] = train(rank, "", next(case for case in CASES if case.run == run))
    results.put((rank, ended))
    dist.barrier()
    dist.destroy_process_group()


def test_two_ranks(tmp_path: Path) -> None:
    by_rank = dict(results_of(work, RANKS, tmp_path))
    for case in CASES:
        for rank, runs in by_rank.items():
            ended = runs[case.run]
            assert ended["missed"] == 0 and len(ended["verdicts"]) == STEPS, case
            for step, (outcome, cause, name, opaque, words) in enumerate(ended["verdicts"]):
                assert outcome == (case.outcome if step >= case.since else "TYPE_I"), (case, words)
                assert not case.cause or cause == case.cause or step < case.since, (case, words)
                assert name == f"default/ddp/{case.run}/{rank if case.ranks == 1 else 0}/{step}"
                # The second step arranges the buckets anew, in memory that C++ fills.
                assert case.ranks == 1 or set(opaque) <= {"plumbline::out_of_sight"}, (case, words)
            assert case.says in ended["verdicts"][case.since][4], (case, ended["verdicts"][case.since][4])
        if case.ranks is None:
            assert by_rank[0][case.run]["verdicts"] == by_rank[1][case.run]["verdicts"]
    for one, other in (("plain", "ddp"), ("sharded_plain", "sharded"), ("classic_plain", "classic")):
        for plain, watched in zip(by_rank[0][one]["weights"], by_rank[0][other]["weights"], strict=True):
            assert (plain == watched).all()
    assert all((a == b).all() for a, b in zip(by_rank[0]["ddp"]["weights"], by_rank[1]["ddp"]["weights"], strict=True))
