"""Runs the fuzz targets of the preset `fuzz` (clang with libFuzzer), one after the other.

    cmake --preset fuzz -DBUILD_TESTING=ON && cmake --build --preset fuzz
    .venv/bin/python tests/fuzz/fuzz.py [--target NAME]... [--runs N | --seconds N] [--forget]

Inputs that reach something new are kept in build/fuzz/corpus/NAME, what breaks a target in build/fuzz/crashes. Before
that goes to tests/fuzz/corpus it is made small: build/fuzz/tests/fuzz/fuzz_NAME -minimize_crash=1 -runs=10000 FILE.
Exit status 1: something broke."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT / "tests" / "fuzz" / "corpus"
BUILD = ROOT / "build" / "fuzz"
INPUT_S_MAX = 25  # An audit of an input ends after two seconds, however busy the machine is.
# Share of executions: what reads little text is a hundred times as fast as what audits a step.
SHARES = {
    "page_token": 0.25,
    "policy": 0.265,
    "profile": 0.3,
    "stored_row": 0.05,
    "golden_file": 0.03,
    "node_part": 0.05,
    "trace_file": 0.02,
    "frames": 0.03,
    "formulas": 0.005,
}


@dataclass
class Outcome:
    target: str
    executions: int
    covered: int  # Edges.
    crashes: int
    last: str  # Lines of the log, where something broke.

    def __str__(self) -> str:
        broke = f"  BROKE {self.crashes}\n{self.last}" if self.crashes else ""
        return f"{self.target:<12} {self.executions:>10} executions  {self.covered:>6} edges{broke}"


def targets() -> list[str]:
    return sorted(path.name for path in SEEDS.iterdir())


def built(target: str) -> Path | None:
    path = BUILD / "tests" / "fuzz" / f"fuzz_{target}"
    return path if os.access(path, os.X_OK) else None


@contextmanager
def quick_folder() -> Iterator[str]:
    """For targets that need a disk: one in memory, where there is."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(prefix="fuzz.", dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield folder


def fuzz(target: str, runs: int | None, seconds: int | None, keep: bool = True) -> Outcome:
    """Goes on after a crash until it has run as often, or as long, as it shall."""
    corpus, crashes = BUILD / "corpus" / target, BUILD / "crashes"
    for folder in (corpus, crashes):
        folder.mkdir(parents=True, exist_ok=True)
    executed = covered = broke = 0
    log = ""
    with quick_folder() as scratch, TemporaryDirectory() as forgotten:
        command = [
            *(str(built(target)), str(corpus) if keep else forgotten, str(SEEDS / target)),
            *(f"-artifact_prefix={crashes}/{target}-", f"-timeout={INPUT_S_MAX}", "-rss_limit_mb=3072"),
            *("-print_final_stats=1", "-detect_leaks=0"),
        ]
        while True:
            limit = f"-max_total_time={seconds}" if runs is None else f"-runs={runs - executed}"
            ran = subprocess.run(
                [*command, limit],
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, "TMPDIR": scratch},
                check=False,
            )
            found = re.findall(r"number_of_executed_units: (\d+)|^#(\d+)\s", ran.stderr, re.MULTILINE)
            executed += max((int(units or line) for units, line in found), default=0)
            covered = max([covered, *map(int, re.findall(r" cov: (\d+) ", ran.stderr))])
            if ran.returncode == 0:
                return Outcome(target, executed, covered, broke, log)
            broke += 1
            log += "\n".join(ran.stderr.splitlines()[-40:])
            if runs is None or executed >= runs or broke >= 8:
                return Outcome(target, executed, covered, broke, log)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", choices=targets(), help="the default: all")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--runs", type=int, help="executions of each")
    length.add_argument("--seconds", type=int, default=60, help="for each (60)")
    parser.add_argument("--forget", action="store_true", help="keep no inputs")
    options = parser.parse_args()
    chosen = options.target or targets()
    missing = [target for target in chosen if built(target) is None]
    if missing:
        parser.error(f"not built: {', '.join(missing)}; run: cmake --build --preset fuzz")
    broke = 0
    for target in chosen:
        outcome = fuzz(target, options.runs, options.seconds, not options.forget)
        print(outcome, flush=True)
        broke += outcome.crashes
    return 1 if broke else 0


if __name__ == "__main__":
    sys.exit(main())
