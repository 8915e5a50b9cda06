"""Many honest streams at once, alone and beside hostile ones, and a daemon that serves for long."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attacks.honest import Honest
from query_support import query_stub, send, type_i
from stream_client import Client
from stream_daemon import DaemonProcess

from plumbline.v1 import query_pb2

HERE = Path(__file__).resolve().parent
FLAGS = (
    "--memory-limit=1GiB",
    "--workers=cpu:2",
    "--step-timeout=20s",
    "--open-timeout=5s",
    "--audit-timeout=1s",
    "--orphan-timeout=1s",
)
PAUSE_S = 0.5  # Between the steps of an honest stream.


@contextlib.contextmanager
def hostile(address: str, count: int) -> Iterator[None]:
    """So many hostile streams, in a process of their own, which stands back behind daemon and honest clients: what it
    computes itself would be on machines of its own, and is not the daemon's to share out."""
    command = ["nice", "-n", "19", sys.executable, "-m", "attacks", address, str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    process = subprocess.Popen(
        command, cwd=HERE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin and process.stdout
    try:
        assert process.stdout.readline().strip() == b"attacking"
        yield
        assert process.poll() is None, "the attackers ended by themselves"
    finally:
        process.stdin.close()
        process.wait(60)


@dataclass
class Beside:
    streams: int
    streams_ok: int
    alone_s: float  # 99th percentile of the latency of an honest step.
    attacked_s: float
    steps: int
    failures: list[str]


def percentile_99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))]


def beside(streams: int, attackers: int, seconds: float) -> Beside:
    """Honest streams for so long, then as long again with hostile ones beside them."""
    daemon = DaemonProcess(*FLAGS)
    try:
        with contextlib.ExitStack() as stack:
            honest = [Honest(daemon.address, f"honest-{i}", PAUSE_S) for i in range(streams)]
            for each in honest:
                with contextlib.suppress(AssertionError):
                    each.__enter__()
                stack.callback(each.__exit__, RuntimeError, RuntimeError(), None)  # Failures are counted here.
            marks = [len(each.seconds) for each in honest]
            time.sleep(seconds)
            alone = [second for each, mark in zip(honest, marks, strict=True) for second in each.seconds[mark:]]
            with hostile(daemon.address, attackers):
                marks = [len(each.seconds) for each in honest]
                time.sleep(seconds)
                attacked = [second for each, mark in zip(honest, marks, strict=True) for second in each.seconds[mark:]]
            served = [not each.failures and len(each.seconds) > mark for each, mark in zip(honest, marks, strict=True)]
            failures = [failure for each in honest for failure in each.failures]
        assert daemon.alive(), daemon.log()
        return Beside(
            streams, sum(served), percentile_99(alone), percentile_99(attacked), len(alone) + len(attacked), failures
        )
    finally:
        daemon.close()


@dataclass
class Soak:
    minutes: float
    rss_growth_pct: float
    rss_mib: float  # In the end.
    steps: int


def _rss_mib(daemon: DaemonProcess) -> float:
    assert daemon.process is not None
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def soak(minutes: float, streams: int) -> Soak:
    """Streams, jobs that come and go, and queries, for so long. Growth is of the last tenth of the time over the second
    one: the first fills pools and caches."""
    daemon = DaemonProcess(*FLAGS)
    client = Client(daemon.address)
    samples: list[float] = []
    try:
        with contextlib.ExitStack() as stack:
            honest = [stack.enter_context(Honest(daemon.address, f"soak-{i}", PAUSE_S / 5)) for i in range(streams)]
            stub = query_stub(client)
            start = time.monotonic()
            number = 0
            while time.monotonic() - start < 60 * minutes or len(samples) < 20:
                job = f"comes-and-goes-{number}"
                stream = client.stream("run", job)
                send(stream, type_i(0), type_i(1))
                stream.close()
                stub.ListJobs(query_pb2.ListJobsRequest())
                stub.ListVerdicts(query_pb2.ListVerdictsRequest(page_size=50, order_by="surprise desc"))
                stub.DeleteJob(query_pb2.DeleteJobRequest(job=job))
                samples.append(_rss_mib(daemon))
                number += 1
                time.sleep(0.05)
        tenth = len(samples) // 10
        first, last = statistics.median(samples[tenth : 2 * tenth]), statistics.median(samples[-tenth:])
        steps = sum(len(each.seconds) for each in honest) + 2 * number
        return Soak(minutes, 100 * (last - first) / first, last, steps)
    finally:
        client.close()
        daemon.close()
