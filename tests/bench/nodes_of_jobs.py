"""Jobs of the report `scaleout` whose ranks stream to several daemons, and what one daemon says of the same steps."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from query_support import query_stub
from stream_client import Client, StepFrames, data, floats, frame, tensor

from plumbline.v1 import query_pb2, trace_pb2, verdict_pb2

PERIOD = 5  # Steps 3, 8, ...: what the last rank gets is not what was sent. Steps 4, 9, ...: rank 0 adds wrongly.
Judgement = tuple[int, int, str]  # Outcome, cause, the line of the suspect.


def share(op: trace_pb2.Op, ranks: int, call: int) -> None:
    """The arguments of a rank's share in a sum over all ranks."""
    op.arguments.add(name="group").integers.values.extend(range(ranks))
    for name, number in (("call", call), ("part", 0), ("root", -1), ("tag", -1)):
        op.arguments.add(name=name, integer=number)
    op.arguments.add(name="reduction", text="sum")


class RankFrames(StepFrames):
    """A rank's y = x + x, which is summed over the ranks `calls` times."""

    def __init__(self, step: int, rank: int, ranks: int, count: int = 2, calls: int = 1) -> None:
        x = [float(1 + step % 7 + other) for other in range(ranks)]
        y, total = 2 * x[rank], 2 * sum(x)
        if step % PERIOD == 4:
            y, total = y + 0.5 * (rank == 0), total + 0.5
        if step % PERIOD == 3 and rank == ranks - 1:
            total += 1
        super().__init__(step, (x[rank],) * count, (y,) * count)
        self.outputs = True
        self.op.op.results[0].observed = 2
        for call in range(calls):
            sent, got = 3 + 2 * call, 4 + 2 * call
            send = trace_pb2.Op(name="plumbline::send.all_reduce", phase=trace_pb2.PHASE_BACKWARD, source="train.py:9")
            send.arguments.add(name="input", tensor=tensor(2, [count]))
            share(send, ranks, call)
            send.arguments.add(name="splits").integers.SetInParent()
            send.results.add(tensor=tensor(sent, [count]), count=count, observed=2)
            receive = trace_pb2.Op(name="plumbline::receive.all_reduce", phase=send.phase, source=send.source)
            share(receive, ranks, call)
            receive.results.add(tensor=tensor(got, [count]), count=count, observed=3)
            self.extra += [frame(op=send), frame(op=receive)]
        self.tap.tap.terms[0].tensor.value = got
        self.tap.tap.terms[0].observed = 3
        self.data += data(3, floats(*(total,) * count))

    def body(self) -> list[Any]:
        return [self.leaf, self.op, *self.extra, self.tap, *self.data]


class Team:
    """The ranks of a job: none begins a step before all have the verdict of the one before it, as with collectives."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.stop = threading.Event()
        self._changed = threading.Condition()
        self._at = [0] * ranks
        self._begun = 0  # Steps that some rank has begun.
        self.steps: int | None = None  # Once it is known.

    def may(self, rank: int, step: int) -> bool:
        """Waits until the rank may begin the step; False: there is none any more."""
        with self._changed:
            self._at[rank] = step
            self._changed.notify_all()
            self._changed.wait_for(lambda: min(self._at) >= step)
            if self.stop.is_set() and self.steps is None:
                self.steps = self._begun
            if self.steps is not None and step >= self.steps:
                return False
            self._begun = max(self._begun, step + 1)
            return True


def rank_stream(client: Client, job: str, rank: int, ranks: int, here: list[int] | None = None) -> Any:
    from stream_client import Stream

    return Stream(client.channel, client.open(job=job, rank=rank, ranks=ranks, ranks_here=here or []))


def judgement(verdict: verdict_pb2.Verdict) -> Judgement:
    return verdict.verdict, verdict.cause, verdict.suspect.source


def of_one_daemon(address: str, job: str, ranks: int, steps: int) -> list[Judgement]:
    """What a daemon says to which all ranks stream."""
    with contextlib.closing(Client(address)) as client:
        streams = [rank_stream(client, job, rank, ranks) for rank in range(ranks)]
        found = []
        for step in range(steps):
            for rank, stream in enumerate(streams):
                stream.send(*RankFrames(step, rank, ranks).frames())
            verdict, *_ = [stream.next("verdict") for stream in streams]
            found.append(judgement(verdict))
    return found


def of_all_ranks(address: str, job: str) -> dict[int, Judgement]:
    """What the shared history says of them."""
    found: dict[int, Judgement] = {}
    asked = query_pb2.ListVerdictsRequest(filter=query_pb2.Filter(job=job, rank=-1), page_size=500)
    with contextlib.closing(Client(address)) as client:
        while True:
            page = query_stub(client).ListVerdicts(asked, timeout=60)
            found |= {verdict.step: judgement(verdict) for verdict in page.verdicts}
            asked.page_token = page.next_page_token
            if not asked.page_token:
                return found
