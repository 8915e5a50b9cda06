"""The report `scaleout`: three daemons in network namespaces of their own share one PostgreSQL and publish to one NATS,
while all of these are killed, cut off and robbed of their disk in turn, and jobs go on, some with ranks on two
nodes or on three."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodes_of_jobs import Team

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("service", "scenario")] + [str(ROOT / "client" / "python")]

KEYS = (
    *("daemons", "jobs", "multi_node_jobs", "verdicts", "lost", "duplicates"),
    *("kills", "partitions", "jetstream_wipes", "pairs_same_as_single_node", "multi_node_same_as_single"),
    *("throughput_3_over_1", "history_rows_per_s", "bytes_between_nodes_per_step"),
    *("simulated_daemons", "simulated_lost", "simulated_behind_s"),
)
DAEMONS = 3
PATIENCE_S = 240.0
NETWORK = "10.99.0"
CLONE_NEWNET = 0x40000000
TOLD_CALLS, TOLD_COUNT = 20, 10_000  # Of the step whose bytes between nodes are counted.


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Network:
    """A bridge in a namespace that this process moves to, and a namespace of each daemon on it."""

    def __init__(self) -> None:
        self._names = [f"plumbline-{os.getpid()}-{number}" for number in range(DAEMONS)]
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        ip("link", "set", "lo", "up")
        ip("link", "add", "bridge", "type", "bridge")
        ip("address", "add", f"{NETWORK}.1/24", "dev", "bridge")
        ip("link", "set", "bridge", "up")
        for number, name in enumerate(self._names):
            ip("netns", "add", name)
            ip("link", "add", f"node{number}", "type", "veth", "peer", "name", "out", "netns", name)
            ip("link", "set", f"node{number}", "master", "bridge", "up")
            ip("-n", name, "address", "add", f"{self.address(number)}/24", "dev", "out")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "out", "up")

    @staticmethod
    def address(number: int) -> str:
        return f"{NETWORK}.{10 + number}"

    def inside(self, number: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._names[number])

    def cut(self, number: int, off: bool) -> None:
        ip("link", "set", f"node{number}", "down" if off else "up")

    def close(self) -> None:
        for name in self._names:
            ip("netns", "del", name)


class Job(threading.Thread):
    """One that streams steps until it is told to stop, through the loss of its daemon; `answered` are its verdicts."""

    def __init__(self, name: str, address: str, progress: Progress, steps: int | None = None) -> None:
        super().__init__(daemon=True)
        self.job, self._address, self._progress, self._steps = name, address, progress, steps
        self.answered: list[str] = []
        self.failure: BaseException | None = None
        self.stop = threading.Event()

    def run(self) -> None:
        try:
            while not self._ended():
                with contextlib.suppress(_lost()):
                    self._stream()
        except BaseException as failure:
            self.failure = failure

    def _ended(self) -> bool:
        return self.stop.is_set() or (self._steps is not None and len(self.answered) >= self._steps)

    def _stream(self) -> None:
        from query_support import send, type_i
        from stream_client import Client

        client = Client(self._address)
        try:
            stream = client.stream(job=self.job)
            while not self._ended():
                (verdict,) = send(stream, type_i(len(self.answered)))
                self.answered.append(verdict.id)
                self._progress.add()
        finally:
            client.close()


class RankJob(Job):
    """One rank of a job whose ranks stream to a daemon each."""

    def __init__(self, name: str, address: str, progress: Progress, rank: int, team: Team) -> None:
        super().__init__(name, address, progress)
        self._rank, self._team = rank, team
        self.stop = team.stop

    def _ended(self) -> bool:
        return self._team.steps is not None and len(self.answered) >= self._team.steps

    def _stream(self) -> None:
        from nodes_of_jobs import RankFrames, rank_stream
        from query_support import send
        from stream_client import Client

        client = Client(self._address)
        try:
            stream = rank_stream(client, self.job, self._rank, self._team.ranks, [self._rank])
            while self._team.may(self._rank, len(self.answered)):
                (verdict,) = send(stream, RankFrames(len(self.answered), self._rank, self._team.ranks))
                self.answered.append(verdict.id)
                self._progress.add()
        finally:
            client.close()


def multi_node_job(name: str, nodes: list[str], progress: Progress) -> list[RankJob]:
    from nodes_of_jobs import Team

    team = Team(len(nodes))
    return [RankJob(name, address, progress, rank, team) for rank, address in enumerate(nodes)]


def bytes_between_nodes(fleet: Fleet, calls: int, count: int) -> float:
    """What the daemons of a step on all nodes tell each other: seen while its last rank has not come."""
    from nodes_of_jobs import RankFrames, rank_stream
    from query_support import send
    from stream_client import Client

    frames = [RankFrames(0, rank, DAEMONS, count, calls) for rank in range(DAEMONS)]
    clients = [Client(daemon.address) for daemon in fleet.daemons]
    streams = [rank_stream(client, "told", rank, DAEMONS, [rank]) for rank, client in enumerate(clients)]
    told = "FROM node_parts WHERE job='told'"
    for rank in range(DAEMONS - 1):
        send(streams[rank], frames[rank])
    wait("the nodes' parts", lambda: fleet.postgres.rows(f"SELECT count(*) {told}") == [str(DAEMONS - 1)])
    of_a_node = float(fleet.postgres.rows(f"SELECT avg(octet_length(part)) {told}")[0])
    send(streams[-1], frames[-1])
    for client in clients:
        client.close()
    return DAEMONS * of_a_node


def same_as_single(fleet: Fleet, teams: dict[str, Team]) -> bool:
    """Whether the job's verdicts are those of one daemon to which all ranks stream: outcome, cause and line."""
    from nodes_of_jobs import PERIOD, of_all_ranks, of_one_daemon

    same = True
    for job, team in teams.items():
        assert team.steps is not None
        whole = of_all_ranks(fleet.daemons[0].address, job)
        one = of_one_daemon(fleet.daemons[-1].address, f"one-{job}", team.ranks, min(team.steps, 2 * PERIOD))
        for step in range(team.steps):
            if whole.get(step) == one[step % len(one)]:
                continue
            same = False
            print(f"{job} step {step}: {whole.get(step)}, of one daemon {one[step % len(one)]}", file=sys.stderr)
    return same


def _lost() -> tuple[type[BaseException], ...]:
    import grpc

    return (grpc.RpcError, AssertionError)  # The latter: the stream ended, or nothing came.


class Progress:
    """How many verdicts have come, and who waits for more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.verdicts = 0

    def add(self) -> None:
        with self._changed:
            self.verdicts += 1
            self._changed.notify_all()

    def wait_for_more(self, count: int) -> None:
        with self._changed:
            until = self.verdicts + count
            assert self._changed.wait_for(lambda: self.verdicts >= until, PATIENCE_S), "the jobs do not go on"


class Fleet:
    def __init__(self, network: Network) -> None:
        from nats_server import NatsServer
        from postgres_server import PostgresServer
        from stream_daemon import DaemonProcess

        self.network = network
        self.postgres = PostgresServer(listen=f"{NETWORK}.1", network=f"{NETWORK}.0/24")
        self.nats = NatsServer(host=f"{NETWORK}.1")
        self.daemons = [
            DaemonProcess(
                f"--store={self.postgres.url}",
                f"--publish={self.nats.url}",
                f"--metrics-listen={network.address(number)}:0",
                "--metrics-public",
                wrapper=network.inside(number),
            )
            for number in range(DAEMONS)
        ]

    def backlog(self, number: int, family: str) -> float:
        from test_shared_history import metric

        return metric(self.daemons[number], family)

    def settled(self) -> None:
        for number in range(DAEMONS):
            for family in ("plumbline_history_backlog_records", "plumbline_publish_backlog_verdicts"):
                wait(f"an empty backlog of daemon {number}", lambda: self.backlog(number, family) == 0)  # noqa: B023

    def close(self) -> None:
        for each in (*self.daemons, self.nats, self.postgres):
            each.close()


def wait(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"expected {what}"


def disturb(fleet: Fleet, progress: Progress, rounds: int, draw: random.Random) -> dict[str, int]:
    """Each kind of trouble once a round, with verdicts between one and the next."""
    done: collections.Counter[str] = collections.Counter(kills=0, partitions=0, jetstream_wipes=0)
    pause = 20

    def kill_daemon() -> None:
        daemon = draw.choice(fleet.daemons)
        daemon.kill()
        daemon.start()
        done["kills"] += 1

    def kill_server(server: Any) -> Callable[[], None]:
        def kill() -> None:
            server.crash()
            progress.wait_for_more(pause)
            server.start()
            done["kills"] += 1

        return kill

    def cut_off() -> None:
        number = draw.randrange(DAEMONS)
        fleet.network.cut(number, True)
        progress.wait_for_more(pause)
        fleet.network.cut(number, False)
        done["partitions"] += 1

    def wipe() -> None:
        fleet.nats.crash()
        fleet.nats.wipe()
        progress.wait_for_more(pause)
        fleet.nats.start()
        done["jetstream_wipes"] += 1

    for _ in range(rounds):
        troubles = [kill_daemon, kill_server(fleet.postgres), kill_server(fleet.nats), cut_off, wipe]
        draw.shuffle(troubles)
        for trouble in troubles:
            trouble()
            progress.wait_for_more(pause)
    return dict(done)


def pairs_same_as_single_node(fleet: Fleet) -> bool:
    """Whether programs that are paired with one at another daemon get the verdicts that its own daemon gives them."""
    from test_golden import accumulated, forgotten, plain, train

    for step in (plain, accumulated, forgotten):
        reference = f"reference-{step.__name__}"
        train(fleet.daemons[0], plain, run=reference, keep_trace=True)
        judged = []
        for number in range(DAEMONS):
            verdicts, errors = train(
                fleet.daemons[number], step, run=f"target-{step.__name__}-{number}", reference=reference
            )
            assert not errors, errors
            judged.append((verdicts[0].verdict, verdicts[0].cause))
        if len(set(judged)) != 1 or judged[0][0] != ("TYPE_II" if step is forgotten else "TYPE_I"):
            return False
    return True


def steps_per_s(fleet: Fleet, daemons: int, steps: int) -> float:
    """Of DAEMONS jobs, on so many daemons."""
    progress = Progress()
    jobs = [
        Job(f"speed-{daemons}-{number}", fleet.daemons[number % daemons].address, progress, steps)
        for number in range(DAEMONS)
    ]
    began = time.monotonic()
    finish(jobs)
    return DAEMONS * steps / (time.monotonic() - began)


def finish(jobs: list[Job]) -> None:
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(PATIENCE_S)
        assert not job.is_alive() and job.failure is None, f"{job.job}: {job.failure}"


def history_rows_per_s(fleet: Fleet, steps: int) -> float:
    """How fast what gathered in a daemon while PostgreSQL was away is there, from when none of it was."""
    fleet.settled()
    fleet.postgres.crash()
    finish([Job("backlog", fleet.daemons[0].address, Progress(), steps)])
    wait("a daemon that knows of it", lambda: fleet.backlog(0, "plumbline_history_up") == 0)
    fleet.postgres.start()
    began = time.monotonic()

    def is_there() -> bool:
        nonlocal began
        asked = time.monotonic()
        rows = int(fleet.postgres.rows("SELECT count(*) FROM verdicts WHERE job='backlog'")[0])
        if rows == 0:
            began = asked
        return rows == steps

    wait("all rows", is_there)
    return steps / (time.monotonic() - began)


def simulated(daemons: int, seconds: int) -> dict:
    """So many daemons that write a tenth of a verdict a second each, as far as histories go."""
    from private_daemon import binary

    command = [str(binary("fleet_bench")), str(daemons), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@contextlib.contextmanager
def running() -> Iterator[Fleet]:
    network = Network()
    try:
        fleet = Fleet(network)
        try:
            yield fleet
        finally:
            fleet.close()
    finally:
        network.close()


def measure(small: bool, seed: int | None) -> tuple[str, dict]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and ip (Debian package iproute2): nothing was measured", dict.fromkeys(
            KEYS
        )
    jobs_count, rounds, speed_steps, backlog = (5, 1, 100, 600) if small else (12, 8, 1000, 5000)
    multi_count = 2 if small else 4  # On two nodes and on three in turn.
    with running() as fleet:
        progress = Progress()
        addresses = [daemon.address for daemon in fleet.daemons]
        jobs = [Job(f"job{n}", addresses[n % DAEMONS], progress) for n in range(jobs_count - multi_count)]
        teams = {}
        for number in range(multi_count):
            ranks = multi_node_job(f"nodes{number}", addresses[: 2 + number % 2], progress)
            teams[ranks[0].job] = ranks[0]._team
            jobs += ranks
        for job in jobs:
            job.start()
        progress.wait_for_more(jobs_count)
        troubles = disturb(fleet, progress, rounds, random.Random(seed))
        for job in jobs:
            job.stop.set()
        for job in jobs:
            job.join(PATIENCE_S)
            assert not job.is_alive() and job.failure is None, f"{job.job}: {job.failure}"
        answered = {identity for job in jobs for identity in job.answered}
        answered |= {f"default/{job}/run/-1/{step}" for job, team in teams.items() for step in range(team.steps or 0)}

        def published() -> collections.Counter[str]:
            return collections.Counter(verdict.id for verdict in fleet.nats.verdicts())

        wait(
            "a verdict of all ranks of each step", lambda: fleet.postgres.rows("SELECT 1 FROM node_steps LIMIT 1") == []
        )
        fleet.settled()
        with contextlib.suppress(AssertionError):  # What is not there by then is counted.
            wait("a stream that was filled again", lambda: answered <= published().keys())
        of_stream = published()
        of_history = collections.Counter(
            fleet.postgres.rows(
                "SELECT project || '/' || job || '/' || run || '/' || rank || '/' || step FROM verdicts"
            )
        )
        lost = len(answered - of_stream.keys()) + len(answered - of_history.keys())
        twice = sum(count - 1 for found in (of_stream, of_history) for count in found.values())
        out_of_order = sum(job_order(fleet.nats.steps(), job.job) for job in jobs if job.job not in teams)
        same = same_as_single(fleet, teams)
        told = bytes_between_nodes(fleet, TOLD_CALLS, TOLD_COUNT)
        one, three = (steps_per_s(fleet, daemons, speed_steps) for daemons in (1, DAEMONS))
        rows = history_rows_per_s(fleet, backlog)
        pairs = pairs_same_as_single_node(fleet)
    many = simulated(20, 2) if small else simulated(1000, 60)
    figures = {
        **{"daemons": DAEMONS, "jobs": jobs_count, "multi_node_jobs": multi_count, "verdicts": len(answered)},
        **{"lost": lost, "duplicates": twice},
        **troubles,
        "pairs_same_as_single_node": pairs,
        "multi_node_same_as_single": same,
        "throughput_3_over_1": round(three / one, 2),
        "history_rows_per_s": round(rows),
        "bytes_between_nodes_per_step": round(told),
        **{"simulated_daemons": many["daemons"], "simulated_lost": many["lost"]},
        "simulated_behind_s": many["behind_most_s"],
        "passed": lost == twice == out_of_order == many["lost"] == 0 and same and pairs,
    }
    text = "\n".join(
        [
            f"answered verdicts                        {len(answered):8}",
            f"  in the stream, in the history          {len(of_stream):8}{len(of_history):8}",
            f"  lost, twice, out of order              {lost:8}{twice:8}{out_of_order:8}",
            f"killed, cut off, stream wiped            {troubles['kills']:8}{troubles['partitions']:8}"
            f"{troubles['jetstream_wipes']:8}",
            f"pairs at two daemons, as at one           {'yes' if pairs else 'no':>8}",
            f"steps a second, one daemon, three        {one:8.0f}{three:8.0f}",
            f"rows a second into the history           {rows:8.0f}",
            f"steps of {multi_count} jobs on two and three nodes  {sum(team.steps or 0 for team in teams.values()):8}",
            f"  verdicts of all ranks as of one daemon {'all' if same else 'NOT ALL':>8}",
            f"bytes between three nodes a step         {told:8.0f}  ({TOLD_CALLS} sums of {TOLD_COUNT} elements)",
            f"daemons that are simulated               {many['daemons']:8}",
            f"  verdicts a second                      {many['verdicts_per_s']:8.0f}",
            f"  their connections                      {many['connections']:8}",
            f"  seconds behind, half the time and most {many['behind_s']:8.2f}{many['behind_most_s']:8.2f}",
            f"All of it, the jobs' clients too, on the {os.cpu_count()} cores of one machine, which one daemon fills.",
        ]
    )
    return text, figures


def job_order(steps: list[str], job: str) -> int:
    """How many of a job's steps come before a smaller one."""
    numbers = [int(step.rpartition("/")[2]) for step in steps if step.startswith(f"{job}/")]
    return sum(later < earlier for earlier, later in itertools.pairwise(numbers))
