"""A run on two nodes, each with a daemon of its own, which judges the ranks of its node: what they send is judged, what
they get from the other node is taken as it was received."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

import plumbline
from plumbline import daemon, ranks
from plumbline.v1 import verdict_pb2

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


CASES = [
    Case("ddp"),
    Case("sharded", style="fsdp"),
    Case("each_its_own", alone=True),
    Case("wrong_product", bug="wrong_product", outcomes=("TYPE_I", "TYPE_II"), cause="EXECUTION"),
    Case("rank_skips", bug="rank_skips", outcomes=("TYPE_I", "TYPE_II"), cause="INVARIANT"),
]


class WrongProducts(TorchDispatchMode):
    """Products of matrices whose first element is wrong by a tenth."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.mm.default:
            out.view(-1)[0] *= 1.1
        return out


def train(rank: int, server: str, case: Case) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    outer: nn.Module = model
    if case.style == "fsdp":
        fully_shard(model)
    else:
        outer = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    wrong = case.bug == "wrong_product" and rank == 2
    audit = plumbline.watch(
        outer,
        optimizer,
        server,
        job="nodes",
        run=case.run,
        every=1,
        capture="outputs",
        on_type_ii="ignore",
        ranks_here=[rank] if case.alone else None,
    )
    with audit:
        for step in range(STEPS):
            x = torch.randn(6, 8, generator=torch.Generator().manual_seed(step * RANKS + rank))
            with WrongProducts() if wrong else contextlib.nullcontext(), audit.step():
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


def work(rank: int, servers: list[str], meeting: str, results: Any) -> None:
    torch.set_num_threads(1)
    importlib.import_module("plumbline.watch").OPEN_WAIT_S = WAIT_S_MAX  # type: ignore[attr-defined]
    os.environ |= {"LOCAL_WORLD_SIZE": str(NODE), "LOCAL_RANK": str(rank % NODE)}  # As torchrun does.
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    results.put((rank, {case.run: train(rank, servers[rank // NODE], case) for case in CASES}))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def by_rank(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    meeting = str(tmp_path_factory.mktemp("nodes") / "meeting")
    with daemon.private() as first, daemon.private() as second:
        processes = [
            context.Process(target=work, args=(rank, [first, second], meeting, results)) for rank in range(RANKS)
        ]
        for process in processes:
            process.start()
        try:
            return dict(results.get(timeout=WAIT_S_MAX) for _ in processes)
        finally:
            for process in processes:
                process.join(20)
                process.kill()


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
