"""Many honest streams at once, alone and beside hostile ones, and a daemon that serves for long."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attacks.honest import Honest
from observability import get
from query_support import metrics_address, query_stub, send, type_i
from stream_client import Client, StepFrames
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
PROCESSES = 4  # Of honest streams.
TURN_S = 3.0


@contextlib.contextmanager
def hostile(address: str, count: int, behind: bool) -> Iterator[None]:
    """So many hostile streams, in a process of their own. What it computes itself would be on machines of its own, and
    is not the daemon's to share out: `behind`, it runs when nothing else would, which leaves this machine to the daemon
    and to honest streams."""
    with _beside("attacks", address, count) as process:
        if behind:
            _schedule(process.pid, os.SCHED_IDLE)
        yield
        assert process.poll() is None, "the attackers ended by themselves"
        _schedule(process.pid, os.SCHED_OTHER)  # Its start and its end are no part of what is measured.


def _schedule(process: int, policy: int) -> None:
    """Sets how all threads of a process are scheduled; what these begin later inherits it."""
    for thread in os.listdir(f"/proc/{process}/task"):
        with contextlib.suppress(ProcessLookupError):  # It has ended since.
            os.sched_setscheduler(int(thread), policy, os.sched_param(0))


@contextlib.contextmanager
def _beside(module: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A module of this folder in a process of its own, from its first line to the end of its standard input."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    process = subprocess.Popen(
        command, cwd=HERE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin and process.stdout
    try:
        assert process.stdout.readline().strip() in (b"attacking", b"served"), f"{module} did not start"
        yield process
    finally:
        process.stdin.close()
        process.wait(60)


@dataclass
class Beside:
    streams: int
    streams_ok: int
    alone_s: float  # 99th percentile of the latency of an honest step.
    attacked_s: float
    competing_s: float  # Beside attackers that compete with all for this machine's processors, too.
    elsewhere_s: float  # While attackers of `attacked_s` attack another daemon of this machine.
    hostile_calls_per_s: float  # That reached the daemon, with what they sent, while `attacked_s` was measured.
    hostile_bytes_per_s: float
    competing_calls_per_s: float
    steps: int
    failures: list[str]


@dataclass
class _Reached:
    """What had reached a daemon by then: calls of the kinds that attackers make, and bytes of frames."""

    calls: float
    frame_bytes: float

    @staticmethod
    def now(daemon: DaemonProcess) -> _Reached:
        page = get(f"http://{metrics_address(daemon)}/metrics")
        calls = re.findall(
            r'^grpc_server_started_total\{[^}]*grpc_method="(?:OpenJob|Audit|Replay)"[^}]*\} (\S+)$', page, re.MULTILINE
        )
        frame_bytes = re.findall(r"^plumbline_ingest_bytes_total\{[^}]*\} (\S+)$", page, re.MULTILINE)
        assert calls and frame_bytes, "the daemon does not count what reaches it"
        return _Reached(sum(map(float, calls)), sum(map(float, frame_bytes)))


def percentile_99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))]


@dataclass
class _Crowd:
    """What honest streams in several processes came to."""

    streams: list[list[tuple[float, float]]]
    failures: list[str]

    def latencies(self, spans: list[tuple[float, float]]) -> list[float]:
        """Of the steps that began within one of the spans."""
        steps = [step for stream in self.streams for step in stream]
        return [seconds for begun, seconds in steps if any(start <= begun < end for start, end in spans)]

    def served(self, spans: list[tuple[float, float]]) -> int:
        return sum(
            all(any(start <= begun < end for begun, _ in stream) for start, end in spans) for stream in self.streams
        )


def beside(streams: int, attackers: int, seconds: float) -> Beside:
    """Honest streams alone for so long, beside hostile ones, and while these attack another daemon; in turns, so that
    what else the machine does meets all of them."""
    daemon, other = DaemonProcess(*FLAGS, "--metrics-listen=127.0.0.1:0"), DaemonProcess(*FLAGS)
    turns: dict[str, tuple[DaemonProcess | None, bool]] = {  # Who is attacked, and whether from behind.
        **{"alone": (None, False), "attacked": (daemon, True)},
        **{"elsewhere": (other, True), "competing": (daemon, False)},
    }
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
    calls, frame_bytes = dict.fromkeys(turns, 0.0), dict.fromkeys(turns, 0.0)
    try:
        with contextlib.ExitStack() as stack:
            each = max(1, streams // PROCESSES)  # Streams that share an interpreter wait for each other.
            processes = [
                stack.enter_context(_beside("attacks.crowd", daemon.address, first, each, PAUSE_S))
                for first in range(0, streams, each)
            ]
            rounds = max(1, round(seconds / TURN_S))
            for _ in range(rounds):
                for name, (victim, behind) in turns.items():
                    attack = hostile(victim.address, attackers, behind) if victim else contextlib.nullcontext()
                    with attack:
                        before, start = _Reached.now(daemon), time.monotonic()
                        time.sleep(seconds / rounds)
                        spans[name].append((start, time.monotonic()))
                        after = _Reached.now(daemon)
                    calls[name] += after.calls - before.calls
                    frame_bytes[name] += after.frame_bytes - before.frame_bytes
            said = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
        crowd = _Crowd(
            [stream for one in said for stream in one["streams"]], [f for one in said for f in one["failures"]]
        )
        assert daemon.alive(), daemon.log()
        found = {name: crowd.latencies(those) for name, those in spans.items()}
        lasted = {name: sum(end - start for start, end in those) for name, those in spans.items()}
        served = crowd.served(spans["attacked"]) if not crowd.failures else streams - len(crowd.failures)
        honest_bytes = sum(len(frame.SerializeToString()) for frame in StepFrames(0).frames())
        return Beside(
            streams=streams,
            streams_ok=served,
            alone_s=percentile_99(found["alone"]),
            attacked_s=percentile_99(found["attacked"]),
            competing_s=percentile_99(found["competing"]),
            elsewhere_s=percentile_99(found["elsewhere"]),
            # Honest streams make no call meanwhile.
            hostile_calls_per_s=calls["attacked"] / lasted["attacked"],
            hostile_bytes_per_s=max(0.0, frame_bytes["attacked"] - honest_bytes * len(found["attacked"]))
            / lasted["attacked"],
            competing_calls_per_s=calls["competing"] / lasted["competing"],
            steps=sum(map(len, found.values())),
            failures=crowd.failures,
        )
    finally:
        other.close()
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
