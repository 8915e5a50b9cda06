"""The report `upgrade`: daemons of an older and of this version share one history, and are upgraded and put back one
after the other, while jobs stream and clients of both versions meet daemons of both."""

from __future__ import annotations

import collections
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scaleout import PATIENCE_S, Job, Progress, wait

ROOT = Path(__file__).resolve().parents[2]
DAEMONS = 3
STEPS_BETWEEN = 20
STEPS_OF_CLIENT = 3
TRAINING = """
import sys, torch, plumbline
model = torch.nn.Linear(4, 1)
audit = plumbline.watch(model, None, sys.argv[1], job=sys.argv[2], every=1)
for _ in range(int(sys.argv[3])):
    with audit.step():
        model(torch.ones(2, 4)).sum().backward()
    assert audit.flush(60), audit.errors()
print(*(verdict.id for verdict in audit.verdicts()))
audit.close()
"""


@dataclass(frozen=True)
class Side:
    """One version: its daemon, its command line and its Python client."""

    daemon: Path
    plumb: Path
    client: Path

    @classmethod
    def of(cls, source: Path, build: Path) -> Side:
        return cls(build / "server" / "plumblined", build / "client" / "cpp" / "plumb", source / "client" / "python")


def built(commit: str) -> Side:
    """The version of a commit, built beside this one's build; kept, so that it is built once."""
    source = ROOT / "build" / "from" / commit
    build = source / "build" / "release"
    done = source / "built"
    if not done.exists():
        print(f"building {commit}", file=sys.stderr)
        source.mkdir(parents=True, exist_ok=True)
        with subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE) as tree:
            subprocess.run(["tar", "-x", "-C", str(source)], stdin=tree.stdout, check=True)
        assert tree.returncode == 0, f"git archive {commit} failed"
        for command in (
            ["cmake", "--preset", "release", "-DBUILD_TESTING=OFF"],
            ["cmake", "--build", str(build), "--target", "plumblined", "plumb"],
            [sys.executable, str(source / "client" / "python" / "generate")],
        ):
            subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
        done.touch()
    return Side.of(source, build)


def resolved(commit: str | None) -> str:
    """The commit's whole name; without one, the last release's."""
    if commit is None:
        command = ["git", "describe", "--tags", "--abbrev=0", "--match=v*"]
        last = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if last.returncode != 0:
            sys.exit("tests/report: expected --from COMMIT, since this repository has no tag of a release")
        commit = last.stdout.strip()
    command = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if found.returncode != 0:
        sys.exit(f"tests/report: --from: expected a commit of this repository, found {commit!r}")
    return found.stdout.strip()


class Fleet:
    """Daemons of the old version, on one history."""

    def __init__(self, old: Side) -> None:
        from postgres_server import PostgresServer
        from stream_daemon import DaemonProcess

        self.postgres = PostgresServer()
        self.daemons: list[DaemonProcess] = []
        try:
            for _ in range(DAEMONS):
                flags = (f"--store={self.postgres.url}", "--metrics-listen=127.0.0.1:0")
                self.daemons.append(DaemonProcess(*flags, program=old.daemon))
        except BaseException:
            self.close()
            raise

    def replace(self, number: int, by: Side) -> None:
        """As a package's upgrade does: the one ends, and what it has on disk is the other's."""
        daemon = self.daemons[number]
        daemon.terminate()
        assert daemon.wait() == 0, daemon.log()
        daemon.program = by.daemon
        daemon.start()

    def metric(self, number: int, family: str) -> float:
        from test_shared_history import metric

        return metric(self.daemons[number], family)

    def all_ship(self) -> None:
        """Each has shipped since its start: what was answered before is there, though more may come meanwhile."""
        for number in range(DAEMONS):
            wait(f"daemon {number} at the history", lambda: self.metric(number, "plumbline_history_up") == 1)  # noqa: B023

    def settled(self) -> None:
        for number in range(DAEMONS):
            wait("an empty backlog", lambda: self.metric(number, "plumbline_history_backlog_records") == 0)  # noqa: B023

    def refusals(self) -> list[str]:
        """What the daemons' logs say of a history that they do not go on with."""
        lines = [line for daemon in self.daemons for line in daemon.log().splitlines()]
        return [line for line in lines if "history_lost" in line and "reason=refused" in line]

    def verdicts(self) -> collections.Counter[str]:
        identity = "project || '/' || job || '/' || run || '/' || rank || '/' || step"
        return collections.Counter(self.postgres.rows(f"SELECT {identity} FROM verdicts"))

    def close(self) -> None:
        for each in (*self.daemons, self.postgres):
            each.close()


def clients(fleet: Fleet, sides: dict[int, Side], job: str) -> tuple[set[str], list[str]]:
    """Trains with each side's client at the daemon of that number, and asks by its `plumb`: the verdicts that were
    answered, and what failed."""
    answered, failures = set(), []
    for number, side in sides.items():
        address = fleet.daemons[number].address
        environment = {**os.environ, "PYTHONPATH": str(side.client), "PLUMBLINE_SERVER": address}
        training = [sys.executable, "-c", TRAINING, address, f"{job}-{number}", str(STEPS_OF_CLIENT)]
        for command in (training, [str(side.plumb), "verdicts"]):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
            if done.returncode != 0:
                failures.append(f"{job}: {command[0]}: {done.stderr.strip()}")
            elif command is training:
                answered |= set(done.stdout.split())
    return answered, failures


@contextlib.contextmanager
def streaming(fleet: Fleet, progress: Progress) -> Iterator[list[Job]]:
    """A job at each daemon, from before to after."""
    jobs = [Job(f"job{number}", daemon.address, progress) for number, daemon in enumerate(fleet.daemons)]
    for job in jobs:
        job.start()
    try:
        yield jobs
    finally:
        for job in jobs:
            job.stop.set()
        for job in jobs:
            job.join(PATIENCE_S)
    assert all(not job.is_alive() and job.failure is None for job in jobs), [job.failure for job in jobs]


def made_newer(fleet: Fleet) -> None:
    """What the history would be like after a later version's daemon that only added something to it."""
    fleet.postgres.rows("UPDATE history SET reached=reached+1; CREATE TABLE what_comes_next(value TEXT)")


def measure(small: bool, commit: str | None) -> tuple[str, dict]:
    """`small`: this build on both sides, and a history that is made newer than it by hand."""
    new = Side.of(ROOT, Path(os.environ.get("PLUMBLINE_BUILD", ROOT / "build" / "release")))
    name = "this build" if small else resolved(commit)
    old = new if small else built(name)
    fleet = Fleet(old)
    try:
        progress = Progress()
        with streaming(fleet, progress) as jobs:
            fleet.all_ship()
            answered, failures = set(), []
            for step, (side, back) in enumerate([(new, old), (old, new)]):
                for number in range(DAEMONS):
                    progress.wait_for_more(STEPS_BETWEEN)
                    fleet.replace(number, side)
                    # The others are of the other version yet. Each meets a client of the other; small, once.
                    if number == 0 and not (small and step):
                        of_clients, failed = clients(fleet, {0: back, DAEMONS - 1: side}, f"clients{step}")
                        answered |= of_clients
                        failures += failed
                progress.wait_for_more(STEPS_BETWEEN)
                fleet.all_ship()
                if small and step == 0:
                    made_newer(fleet)
        fleet.settled()
        answered |= {identity for job in jobs for identity in job.answered}
        stored = fleet.verdicts()
        reached = fleet.postgres.rows("SELECT version || ' ' || reached FROM history")
        refusals = fleet.refusals() + failures
    finally:
        fleet.close()
    lost, twice = len(answered - stored.keys()), sum(count - 1 for count in stored.values())
    figures = {
        **{"from": name, "daemons": DAEMONS, "verdicts": len(answered), "lost": lost, "duplicates": twice},
        **{"refused": len(refusals), "passed": lost == twice == len(refusals) == 0},
    }
    lines = [
        f"daemons upgraded and put back            {DAEMONS:8}{DAEMONS:8}",
        f"answered verdicts                        {len(answered):8}",
        f"  lost, twice                            {lost:8}{twice:8}",
        f"refused by a daemon or to a client       {len(refusals):8}",
        f"a history of versions (needed, reached)  {reached[0]:>8}",
    ]
    return "\n".join([*lines, *refusals]), figures
