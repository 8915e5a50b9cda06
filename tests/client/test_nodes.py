"""A run on two nodes, each with a daemon of its own, which judges the ranks of its node: what they send is judged, what
they get from the other node is taken as it was received. The history that the daemons share has one verdict of all
ranks for each step: the one that a daemon gives to which all of them stream."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

import plumbline
from plumbline import daemon, ranks
from plumbline.v1 import query_pb2, query_pb2_grpc, verdict_pb2

sys.path.append(str(Path(__file__).resolve().parents[1] / "service"))
from postgres_server import PostgresServer

RANKS, NODE, STEPS = 4, 2, 2  # NODE: ranks of a node.
WAIT_S_MAX = 240


@dataclass
class Case:
    """One run of all ranks, and what the verdicts of both nodes must say."""

    run: str
    style: str = "ddp"
    bug: str = ""
    alone: bool = False  # Each rank is one of a node of its own.
    outcomes: tuple[str, str] = ("TYPE_I", "TYPE_I")
    cause: str = ""
    whole: str = ""  # The cause of the verdict of all ranks, where it is TYPE_II and no node's is.


CASES = [
    Case("ddp"),
    Case("sharded", style="fsdp"),
    Case("each_its_own", alone=True),
    Case("wrong_product", bug="wrong_product", outcomes=("TYPE_I", "TYPE_II"), cause="EXECUTION"),
    Case("rank_skips", bug="rank_skips", outcomes=("TYPE_I", "TYPE_II"), cause="INVARIANT"),
    # What no node sees by itself:
    Case("skips_alone", bug="rank_skips", alone=True, whole="INVARIANT"),
    Case("corrupted_sum", bug="corrupted_sum", whole="EXECUTION"),
    Case("corrupted_copy", style="fsdp", bug="corrupted_copy", whole="EXECUTION"),
]


class WrongProducts(TorchDispatchMode):
    """Products of matrices whose first element is wrong by a tenth."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.mm.default:
            out.view(-1)[0] *= 1.1
        return out


class Corrupted(TorchDispatchMode):
    """Collectives from which this node gets something else than what was sent: in its first element, by a quarter."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self._operation = operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func)
        if self._operation in name:
            tensors, work = out if isinstance(out, tuple) else (args[0], out)
            work.wait()
            first = tensors[0] if isinstance(tensors, list) else tensors
            (first[0] if isinstance(first, list) else first).view(-1)[0].mul_(1.25)
        return out


def bug_of(case: Case, rank: int) -> contextlib.AbstractContextManager[Any]:
    if case.bug == "wrong_product" and rank == 2:
        return WrongProducts()
    if case.bug == "corrupted_sum" and rank >= NODE:
        return Corrupted("c10d.allreduce_")
    if case.bug == "corrupted_copy" and rank >= NODE:
        return Corrupted("c10d._allgather_base_")
    return contextlib.nullcontext()


def train(rank: int, server: str, case: Case, whole: bool) -> dict[str, Any]:
    """whole: all ranks stream to one daemon."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    outer: nn.Module = model
    if case.style == "fsdp":
        fully_shard(model)
    else:
        outer = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    audit = plumbline.watch(
        outer,
        optimizer,
        server,
        job="nodes",
        run=case.run,
        every=1,
        capture="outputs",
        on_type_ii="ignore",
        ranks=RANKS if whole else None,
        ranks_here=[rank] if case.alone and not whole else None,
    )
    with audit:
        for step in range(STEPS):
            x = torch.randn(6, 8, generator=torch.Generator().manual_seed(step * RANKS + rank))
            with bug_of(case, rank), audit.step():
                outer(x).square().mean().backward()
                if not (case.bug == "rank_skips" and rank == 3):
                    optimizer.step()
                optimizer.zero_grad()
        assert audit.flush()
        return {
            "missed": audit.missed(),
            "errors": {step: str(error) for step, error in audit.errors().items()},
            "verdicts": [v.message.SerializeToString() for v in audit.verdicts()],
        }


def work(rank: int, servers: list[str], one: str, meeting: str, results: Any) -> None:
    torch.set_num_threads(1)
    importlib.import_module("plumbline.watch").OPEN_WAIT_S = WAIT_S_MAX  # type: ignore[attr-defined]
    os.environ |= {"LOCAL_WORLD_SIZE": str(NODE), "LOCAL_RANK": str(rank % NODE)}  # As torchrun does.
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    nodes = {case.run: train(rank, servers[rank // NODE], case, False) for case in CASES}
    whole = {f"{case.run} whole": train(rank, one, case, True) for case in CASES}
    results.put((rank, {**nodes, **whole}))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def fleet() -> Iterator[tuple[list[str], str]]:
    """Two daemons that share a history, and one that has its own."""
    history = PostgresServer()
    try:
        flag = f"--store={history.url}"
        with daemon.private(flag) as first, daemon.private(flag) as second, daemon.private() as one:
            yield [first, second], one
    finally:
        history.close()


@pytest.fixture(scope="module")
def by_rank(tmp_path_factory: pytest.TempPathFactory, fleet: tuple[list[str], str]) -> dict[int, dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    meeting = str(tmp_path_factory.mktemp("nodes") / "meeting")
    processes = [context.Process(target=work, args=(rank, *fleet, meeting, results)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    try:
        return dict(results.get(timeout=WAIT_S_MAX) for _ in processes)
    finally:
        for process in processes:
            process.join(20)
            process.kill()


@pytest.fixture(scope="module")
def of_all(fleet: tuple[list[str], str], by_rank: Any) -> dict[tuple[str, int], plumbline.Verdict]:
    """The verdicts of all ranks, by run and step, as a daemon that shares the history tells them."""
    found: dict[tuple[str, int], plumbline.Verdict] = {}
    with grpc.insecure_channel(fleet[0][1]) as channel:
        asked = query_pb2.WatchVerdictsRequest(filter=query_pb2.Filter(job="nodes", rank=-1), include_past=True)
        for message in query_pb2_grpc.VerdictServiceStub(channel).WatchVerdicts(asked, timeout=WAIT_S_MAX):
            assert (message.run, message.step) not in found
            found[message.run, message.step] = plumbline.Verdict(message)
            if len(found) == len(CASES) * STEPS:
                return found
    raise AssertionError(f"expected all verdicts, found {sorted(found)}")


def verdicts_of(ended: dict[str, Any]) -> Iterator[plumbline.Verdict]:
    for text in ended["verdicts"]:
        message = verdict_pb2.Verdict.FromString(text)
        yield plumbline.Verdict(message)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.run)
def test_each_node_judges_its_own_ranks(by_rank: dict[int, dict[str, Any]], case: Case) -> None:
    for rank in range(RANKS):
        ended = by_rank[rank][case.run]
        assert not ended["errors"] and ended["missed"] == 0 and len(ended["verdicts"]) == STEPS
        here = [rank] if case.alone else [rank - rank % NODE, rank - rank % NODE + 1]
        for step, verdict in enumerate(verdicts_of(ended)):
            words, message = verdict.explain(all=True), verdict.message
            assert verdict.id == f"default/nodes/{case.run}/{here[0]}/{step}"
            assert verdict.verdict == case.outcomes[rank // NODE] or step > 0, words
            assert (list(message.ranks_here), message.ranks_of_run) == (here, RANKS)
            assert len(message.rank_digests) == len(here)
            assert f"{', '.join(map(str, here))} of {RANKS}, judged together" in words
            assert any("other daemons" in note for note in message.notes), words
            # What came from the other node is no operation, and nothing is proven of it.
            assert set(message.coverage.opaque_names) <= {"plumbline::out_of_sight"}, words
            assert any("sent:" in tap.name for tap in message.taps), words
            if verdict.verdict == "TYPE_I":
                assert verdict.grade != "PROVEN" and "taken as it was received" in verdict.sentence, words
        first = next(verdicts_of(ended))
        if first.verdict == "TYPE_II":
            assert first.cause == case.cause, first.explain()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.run)
def test_the_job_has_the_verdict_that_one_daemon_gives(
    by_rank: dict[int, dict[str, Any]], of_all: dict[tuple[str, int], plumbline.Verdict], case: Case
) -> None:
    for step, one in enumerate(verdicts_of(by_rank[0][f"{case.run} whole"])):
        verdict = of_all[case.run, step]
        words, message = verdict.explain(all=True) + one.explain(all=True), verdict.message
        assert verdict.id == f"default/nodes/{case.run}/-1/{step}"
        assert (message.ranks, message.ranks_of_run, message.node != "") == (RANKS, 0, True)
        assert "judged together" in words
        if step > 0 and case.bug:
            continue  # What is wrong by then has been so for a step.
        assert (verdict.verdict, verdict.cause) == (one.verdict, one.cause), words
        assert verdict.verdict == ("TYPE_II" if case.bug else "TYPE_I"), words
        assert verdict.cause == (case.whole or case.cause or "ROUNDING"), words
        assert not any("were not compared" in note for note in message.notes), words
        if case.bug != "rank_skips" and case.bug:
            assert verdict.suspect is not None and one.suspect is not None, words
            assert verdict.suspect.source == one.suspect.source, words


def test_a_wrong_product_is_found_on_its_node_at_its_line(by_rank: dict[int, dict[str, Any]]) -> None:
    verdict = next(verdicts_of(by_rank[3]["wrong_product"]))
    assert verdict.suspect is not None and verdict.suspect.op.startswith("aten::mm"), verdict.explain()
    assert verdict.suspect.source.startswith("test_nodes.py:"), verdict.explain()


@pytest.mark.parametrize(
    "environment,size,pairs,expected",
    [
        ({}, 4, False, (4, ())),
        ({"LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "3"}, 4, True, (4, ())),
        ({"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}, 4, False, (4, (2, 3))),
        ({"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}, 4, True, (1, ())),
        ({"LOCAL_WORLD_SIZE": "2"}, 4, False, (1, ())),
        ({"LOCAL_WORLD_SIZE": "3", "LOCAL_RANK": "1"}, 4, False, (1, ())),  # Not what torchrun would say.
        ({"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "two"}, 4, False, (1, ())),
        ({"LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "3"}, 1024, False, (1024, tuple(range(8)))),
        ({}, 1024, False, (1, ())),
    ],
)
def test_who_is_judged_together(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], size: int, pairs: bool, expected: Any
) -> None:
    for name in ("LOCAL_WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ranks, "_world_size", lambda: size)
    assert ranks.judged_ranks(None, None, 3, pairs) == expected


def test_ranks_by_hand() -> None:
    assert ranks.judged_ranks(4, [3, 2, 3], 2, False) == (4, (2, 3))
    assert ranks.judged_ranks(2, [0, 1], 0, False) == (2, ())
    with pytest.raises(plumbline.PlumblineError, match="ranks_here: expected a run of several ranks"):
        ranks.judged_ranks(None, [0], 0, False)
    with pytest.raises(plumbline.PlumblineError, match="ranks_here: expected one rank or more"):
        ranks.judged_ranks(2, [], 0, False)


@pytest.mark.parametrize(
    "arguments,words",
    [
        ({"ranks_here": [1, 2]}, "rank 0 among them"),
        ({"ranks_here": [0, 4]}, "expected 0 to 3, since the run has 4 ranks"),
        ({"ranks_here": [-1, 0]}, "expected 0 to 3"),
        ({"ranks_here": [0], "reference": "whole"}, "none where ranks of the run stream to other daemons"),
        ({"ranks_here": [0], "golden": "v1"}, "golden"),
        ({"ranks_here": [0], "record_golden": "v1"}, "none where ranks of the run stream to other daemons"),
        ({"ranks_here": [0], "keep_trace": True}, "reference: expected false"),
    ],
)
def test_what_the_daemon_refuses(server: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(plumbline.PlumblineError, match=words):
        plumbline.watch(nn.Linear(2, 1), None, server, job="nodes", rank=0, ranks=4, **arguments)


def test_ranks_are_in_one_group_alone(server: str) -> None:
    model = nn.Linear(2, 1)
    with plumbline.watch(model, None, server, job="nodes", run="groups", rank=0, ranks=4, ranks_here=[0, 1]):
        plumbline.watch(model, None, server, job="nodes", run="groups", rank=2, ranks=4, ranks_here=[2, 3]).close()
        for rank, here in ((1, [1, 2]), (3, [1, 3])):
            with pytest.raises(plumbline.PlumblineError, match="ranks_here: expected ranks"):
                plumbline.watch(model, None, server, job="nodes", run="groups", rank=rank, ranks=4, ranks_here=here)
