"""Pipelines: each rank holds a stage of the model, and activations and their gradients go from rank to rank as
messages. The ranks are judged together, and against one process that holds the whole model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gloo_ranks import results_of
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import plumbline

RANKS, BATCH, PARTS, STEPS = 2, 8, 2, 2


@dataclass
class Case:
    """One run of both ranks, and what its verdicts must say."""

    run: str
    # "messages": send and recv; "requests": isend and irecv; "schedule": PyTorch's GPipe; "scaled": it takes the mean.
    style: str = "messages"
    bug: str = ""
    outcome: str = "TYPE_I"
    cause: str = ""
    says: str = ""


CASES = [
    Case("messages"),
    Case("requests", style="requests"),
    Case("schedule", style="schedule"),
    Case("scaled_gradients", style="scaled"),
    Case("another_parts_gradient", bug="swapped", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("sum_for_mean", bug="sum", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("stale", bug="stale", outcome="TYPE_II", cause="MATHEMATICS"),
    Case("any_source", style="any"),
    Case("any_source_swapped", style="any", bug="swapped", outcome="TYPE_II", cause="MATHEMATICS"),
]


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.second = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if hasattr(self, "first"):
            x = self.first(x)
        return self.second(x) if hasattr(self, "second") else x


def batch(step: int) -> torch.Tensor:
    return torch.randn(BATCH, 6, generator=torch.Generator().manual_seed(step))


def loss_of(out: torch.Tensor) -> torch.Tensor:
    return out.square().mean()


def stage_of(rank: int) -> Whole:
    model = Whole()
    delattr(model, "second" if rank == 0 else "first")
    return model


class Wire:
    """Tensors to and from the other rank."""

    def __init__(self, style: str, rank: int) -> None:
        self.style, self.other, self.requests = style, 1 - rank, []

    def send(self, tensor: torch.Tensor, tag: int) -> None:
        if self.style == "requests":
            self.requests.append(dist.isend(tensor, self.other, tag=tag))
        else:
            dist.send(tensor, self.other, tag=tag)

    def receive(self, like: torch.Tensor, tag: int) -> torch.Tensor:
        got = torch.zeros_like(like)
        if self.style == "requests":
            dist.irecv(got, self.other, tag=tag).wait()
        elif self.style == "any":
            dist.recv(got, tag=tag)
        else:
            dist.recv(got, self.other, tag=tag)
        return got


def first_stage(model: nn.Module, x: torch.Tensor, wire: Wire, bug: str) -> None:
    made = [model(part) for part in x.chunk(PARTS)]
    for tag, part in enumerate(made):
        wire.send(made[0].detach() if bug == "stale" else part.detach(), tag)
    gradients = [wire.receive(part, PARTS + tag) for tag, part in enumerate(made)]
    if bug == "swapped":
        gradients.reverse()
    for part, gradient in zip(made, gradients, strict=True):
        part.backward(gradient)


def last_stage(model: nn.Module, wire: Wire, bug: str) -> None:
    parts = [wire.receive(torch.zeros(BATCH // PARTS, 16), tag).requires_grad_() for tag in range(PARTS)]
    for tag, part in enumerate(parts):
        (loss_of(model(part)) / (1 if bug == "sum" else PARTS)).backward()
        wire.send(part.grad, PARTS + tag)


def train(rank: int, server: str, case: Case) -> list[Any]:
    model = stage_of(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    schedule = None
    if case.style in ("schedule", "scaled"):
        scales = case.style == "scaled"
        stage = PipelineStage(model, rank, RANKS, torch.device("cpu"))
        schedule = ScheduleGPipe(
            stage, PARTS, loss_fn=lambda out, _: loss_of(out) / (1 if scales else PARTS), scale_grads=scales
        )
    with plumbline.watch(model, optimizer, server, job="pipeline", run=case.run, reference="whole", every=1) as audit:
        for step in range(STEPS):
            x, wire = batch(step), Wire(case.style, rank)
            with audit.step():
                if schedule is not None:
                    schedule.step(x) if rank == 0 else schedule.step(target=torch.zeros(BATCH, 3))
                elif rank == 0:
                    first_stage(model, x, wire, case.bug)
                else:
                    last_stage(model, wire, case.bug)
                for request in wire.requests:
                    request.wait()
                optimizer.step()
                optimizer.zero_grad()
        assert audit.flush()
        assert not audit.errors(), audit.errors()
        assert audit.missed() == 0
        return [(v.verdict, v.cause, list(v.coverage.opaque_names), v.explain()) for v in audit.verdicts()]


def train_whole(server: str) -> None:
    model = Whole()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    with plumbline.watch(model, optimizer, server, job="pipeline", run="whole", every=1, ranks=1) as audit:
        for step in range(STEPS):
            x = batch(step)
            with audit.step():
                loss_of(model(x)).backward()
                optimizer.step()
                optimizer.zero_grad()
        assert audit.flush()
        assert [verdict.verdict for verdict in audit.verdicts()] == ["TYPE_I"] * STEPS


def work(rank: int, server: str, meeting: str, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    if rank == 0:
        train_whole(server)
    dist.barrier()
    results.put((rank, {case.run: train(rank, server, case) for case in CASES}))
    dist.barrier()
    dist.destroy_process_group()


def test_two_stages(tmp_path: Path) -> None:
    by_rank = dict(results_of(work, RANKS, tmp_path))
    for case in CASES:
        for runs in by_rank.values():
            assert len(runs[case.run]) == STEPS
            for outcome, cause, opaque, words in runs[case.run]:
                assert outcome == case.outcome, (case, words)
                assert not case.cause or cause == case.cause, (case, words)
                assert case.says in words, (case, words)
                # The schedule's buffers are memory that it had before the step.
                assert case.style in ("schedule", "scaled") or not opaque, (case, words)
                assert set(opaque) <= {"plumbline::out_of_sight"}, (case, words)
