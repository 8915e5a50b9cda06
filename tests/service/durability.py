"""What becomes of acknowledged verdicts, and of sampled steps, when the daemon is killed or its disk is full.

`kill9` and `disk_full` each run some rounds against a daemon of their own and count what must not be: verdicts that a
client has seen and that are gone or different, steps that were judged twice, steps that nobody accounts for."""

from __future__ import annotations

import random
import re
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from stream_client import Client, StepFrames
from stream_daemon import DaemonProcess

from plumbline.v1 import query_pb2, query_pb2_grpc, verdict_pb2

WAIT_S_MAX = 60.0


@dataclass
class Tally:
    rounds: int = 0
    acked: int = 0
    acked_lost: int = 0
    duplicates: int = 0
    steps: int = 0  # Sampled by clients.
    silent_gaps: int = 0  # Of them, without verdict, error or count.
    refused: int = 0  # Records that a full disk did not take: a round without any shows nothing.
    notes: list[str] = field(default_factory=list)  # What was wrong, for a person.


def stored_verdicts(address: str) -> list[verdict_pb2.Verdict]:
    """Every verdict on disk, as lists have them."""
    client = Client(address)
    try:
        stub = query_pb2_grpc.VerdictServiceStub(client.channel)
        found: list[verdict_pb2.Verdict] = []
        request = query_pb2.ListVerdictsRequest(page_size=1000)
        while True:
            page = stub.ListVerdicts(request)
            found += page.verdicts
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token
    finally:
        client.close()


def changed_verdicts(address: str, seen: dict[str, bytes]) -> list[str]:
    """Those that are not on disk as a client has seen them."""
    client = Client(address)
    stub = query_pb2_grpc.VerdictServiceStub(client.channel)

    def stored(verdict: str) -> bytes | None:
        try:
            got = stub.GetVerdict(query_pb2.GetVerdictRequest(id=verdict))
            return got.SerializeToString(deterministic=True)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
            return None

    try:
        return [verdict for verdict, content in seen.items() if stored(verdict) != content]
    finally:
        client.close()


def _stream_until_killed(address: str, run: str, step: int, seen: dict[str, bytes], acked: threading.Semaphore) -> None:
    client = Client(address)
    try:
        stream = client.stream(run)
        while True:
            stream.send(*StepFrames(step, x=(float(step), 2.0)).frames())
            verdict = stream.next("verdict")
            seen[verdict.id] = verdict.SerializeToString(deterministic=True)
            acked.release()
            step += 1
    except (AssertionError, grpc.RpcError):
        return  # The daemon is gone.
    finally:
        client.close()


def kill9(rounds: int, seed: int, streams: int = 3) -> Tally:
    """Kills the daemon while steps stream, and looks for every verdict that a client had seen once it is back."""
    chance = random.Random(seed)
    tally = Tally()
    seen: dict[str, bytes] = {}
    daemon = DaemonProcess("--memory-limit=64MiB")
    try:
        for number in range(rounds):
            before = set(seen)
            last = Counter[str]()
            for verdict in seen:
                _, _, run, _, step = verdict.split("/")
                last[run] = max(last[run], int(step) + 1)
            acked = threading.Semaphore(0)
            threads = [
                threading.Thread(
                    target=_stream_until_killed,
                    args=(daemon.address, f"run-{index}", last[f"run-{index}"], seen, acked),
                )
                for index in range(streams)
            ]
            for thread in threads:
                thread.start()
            for _ in range(chance.randrange(1, 40)):
                assert acked.acquire(timeout=WAIT_S_MAX), daemon.log()
            daemon.kill()
            for thread in threads:
                thread.join()
            daemon.start()
            times = Counter(verdict.id for verdict in stored_verdicts(daemon.address))
            # All of them are there, and those of this round as they were; in the end, so are all.
            looked_at = {verdict: content for verdict, content in seen.items() if verdict not in before}
            if number + 1 == rounds:
                looked_at = seen
            lost = sorted({verdict for verdict in seen if times[verdict] == 0})
            lost += [verdict for verdict in changed_verdicts(daemon.address, looked_at) if verdict not in lost]
            twice = [verdict for verdict, count in times.items() if count > 1]
            tally.notes += [f"round {number}: lost {verdict}" for verdict in lost]
            tally.notes += [f"round {number}: twice {verdict}" for verdict in twice]
            tally.acked_lost += len(lost)
            tally.duplicates += len(twice)
            tally.rounds += 1
        tally.acked = len(seen)
    finally:
        daemon.close()
    return tally


@contextmanager
def small_disk(size: str = "48m") -> Iterator[Path]:
    """A file system of its own. Needs root; PermissionError otherwise."""
    with tempfile.TemporaryDirectory(prefix="plumbline.") as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, text=True, check=False
        )
        if mounted.returncode:
            raise PermissionError(f"no file system can be mounted here: {mounted.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path: Path) -> None:
    """Writes a file until the disk takes no more."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


def disk_full(rounds: int, seed: int) -> Tally:
    """Fills the daemon's disk while a job trains and frees it again. Every sampled step has a verdict or an error on
    disk, or is counted as missed there or by the client. Raises PermissionError where no disk can be made."""
    import torch

    import plumbline

    chance = random.Random(seed)
    tally = Tally()
    with small_disk() as disk:
        daemon = DaemonProcess("--memory-limit=64MiB", f"--data-dir={disk}/data", "--disk-reserve=0")
        try:
            for number in range(rounds):
                model = torch.nn.Linear(4, 2)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
                job = f"round-{number}"
                audit = plumbline.watch(model, optimizer, daemon.address, job=job, run="run", every=1)

                def step(model=model, optimizer=optimizer, audit=audit) -> None:
                    with audit.step():
                        model(torch.randn(3, 4)).square().mean().backward()
                        optimizer.step()
                        optimizer.zero_grad()

                steps = 0
                for pause, count in ((0.0, chance.randrange(1, 6)), (0.02, chance.randrange(2, 12))):
                    for _ in range(count):
                        step()
                        steps += 1
                        time.sleep(pause)
                    if pause == 0.0:
                        fill(disk / "filler")
                (disk / "filler").unlink()
                flushed = audit.flush(WAIT_S_MAX)
                step()  # Tells of the steps that were missed.
                steps += 1
                flushed = audit.flush(WAIT_S_MAX) and flushed
                missed_by_client, seen = audit.missed(), audit.verdicts()
                audit.close()
                _count(tally, daemon, job, steps, missed_by_client, seen, flushed)
            tally.refused = sum(map(int, re.findall(r"(\d+) were refused meanwhile", daemon.log())))
        finally:
            daemon.close()
    return tally


def _count(
    tally: Tally, daemon: DaemonProcess, job: str, steps: int, missed_by_client: int, seen: list, flushed: bool
) -> None:
    client = Client(daemon.address)
    stub = query_pb2_grpc.VerdictServiceStub(client.channel)
    summary = stub.GetJob(query_pb2.GetJobRequest(job=job))
    stored = [verdict for verdict in stored_verdicts(daemon.address) if verdict.job == job]
    client.close()
    ids = {verdict.id for verdict in stored}
    lost = [verdict.step for verdict in seen if f"default/{job}/run/0/{verdict.step}" not in ids]
    silent = steps - (summary.steps + summary.errors + summary.missed + missed_by_client)
    if silent or lost or not flushed:
        tally.notes.append(
            f"{job}: {steps} steps, {summary.steps} stored, {summary.errors} errors, {summary.missed} missed there, "
            f"{missed_by_client} missed here; lost {lost}; flushed {flushed}"
        )
    tally.rounds += 1
    tally.steps += steps
    tally.acked += len(seen)
    tally.acked_lost += len(lost)
    tally.duplicates += len(stored) - len(ids)
    tally.silent_gaps += abs(silent)
