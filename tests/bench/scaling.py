"""How many more audits two workers make than one.

  jobs_scaling        audits a second of small jobs that two workers share on two cores / twice those of one on one core
  jobs_scaling_apart  the same of two daemons that share nothing but the machine, each on a core of its own with its
                      clients: what the machine itself keeps back of its second core

The steps are captured before, so that clients take no time beside the audits.
"""

import os
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import torch
import torch.nn.functional as F
from gpt import GPT
from private_daemon import Daemon, running

from plumbline.dump import record
from plumbline.v1 import archive_pb2, archive_pb2_grpc, verdict_pb2


def captured_step(small: bool) -> bytes:
    """A training step of a small GPT, as a file that a daemon takes."""
    torch.manual_seed(0)
    model = GPT(vocabulary=32, context=32, width=32 if small else 64, layers=1 if small else 2, heads=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 32, (4, 32))

    def step() -> dict[str, torch.Tensor]:
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach()}

    return b"".join(delimited(message) for message in record(step, [model], [optimizer]))


def delimited(message: bytes) -> bytes:
    size, prefix = len(message), b""
    while size > 127:
        prefix += bytes((size & 127 | 128,))
        size >>= 7
    return prefix + bytes((size,)) + message


def requests(step: bytes) -> Iterator[archive_pb2.ReplayRequest]:
    yield archive_pb2.ReplayRequest(profile="pytorch-cpu")
    for at in range(0, len(step), 1 << 20):
        yield archive_pb2.ReplayRequest(data=step[at : at + (1 << 20)])


def seconds(daemon: Daemon, step: bytes, audits: int, clients: int) -> float:
    """How long so many audits take, asked for by so many clients at a time."""
    with grpc.insecure_channel(daemon.address) as channel, ThreadPoolExecutor(clients) as pool:
        archive = archive_pb2_grpc.ArchiveServiceStub(channel)

        def audit(_: int) -> None:
            verdict = archive.Replay(requests(step)).verdict
            if verdict.verdict != verdict_pb2.OUTCOME_TYPE_I:
                raise RuntimeError(f"a right step: {verdict.sentence}")

        list(pool.map(audit, range(clients)))
        start = time.perf_counter()
        list(pool.map(audit, range(audits)))
        return time.perf_counter() - start


def seconds_on(core: int, step: bytes, audits: int, ready: threading.Barrier | None = None) -> float:
    """The same of a daemon of one worker, which the core has to itself with its clients."""
    os.sched_setaffinity(0, {core})  # Of this thread, and of what it starts.
    with running("--workers=cpu:1") as daemon:
        if ready is not None:
            ready.wait()
        return seconds(daemon, step, audits, 2)


def measure(small: bool) -> tuple[dict[str, float], list[str]]:
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise RuntimeError("two workers want two cores, and this machine gives one")
    step = captured_step(small)
    audits, rounds = (4, 1) if small else (72, 5)  # So many that the end, when one worker is idle, counts for little.
    shared, apart, one_s, two_s = [], [], [], []
    for _ in range(rounds):
        with ThreadPoolExecutor(2) as pool:
            one_s.append(pool.submit(seconds_on, cores[0], step, audits).result())
        with running("--workers=cpu:2") as daemon:
            two_s.append(seconds(daemon, step, audits, 4))
        with ThreadPoolExecutor(2) as pool:
            ready = threading.Barrier(2)
            halves = [pool.submit(seconds_on, core, step, audits // 2, ready) for core in cores]
            together = max(half.result() for half in halves)
        shared.append(one_s[-1] / two_s[-1] / 2)
        apart.append(one_s[-1] / together / 2)
    lines = [
        f"{audits} audits of a small GPT's step",
        f"  one worker on one core            {statistics.median(one_s) / audits * 1e3:9.1f} ms each",
        f"  two workers on two                {statistics.median(two_s) / audits * 1e3:9.1f} ms each",
        f"  of twice as many                  {statistics.median(shared):9.2f}  [{min(shared):.2f}, {max(shared):.2f}]",
        f"  two daemons, each on its own core {statistics.median(apart):9.2f}  [{min(apart):.2f}, {max(apart):.2f}]",
    ]
    return {"jobs_scaling": statistics.median(shared), "jobs_scaling_apart": statistics.median(apart)}, lines
