"""The reports `soundness` and `tightness`: programs of tests/soundness, whose last line is JSON."""

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PER_CLASS = 10**8  # Elements executed of each class of primitives.
PER_CLASS_SMALL = 10**5


def run(program: str, *arguments: str) -> tuple[str, dict]:
    """The table that a program prints and its figures. Its exit status says whether they are as they must be."""
    build = Path(os.environ.get("PLUMBLINE_BUILD", ROOT / "build" / "release"))
    command = [str(build / "tests" / "soundness" / program), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    text, _, last = done.stdout.rstrip("\n").rpartition("\n")
    if not last.startswith("{"):
        raise RuntimeError(f"{program} ended with status {done.returncode} and no figures:\n{done.stdout}")
    return text, {**json.loads(last), "passed": done.returncode == 0}


def soundness(small: bool, seed: int | None) -> tuple[str, dict]:
    table, figures = run("soundness", str(PER_CLASS_SMALL if small else PER_CLASS), str(1 if seed is None else seed))
    mutants, caught = run("soundness_mutants", *(["--small"] if small else []))
    return f"{table}\n\n{mutants}", {**figures, **caught, "passed": figures["passed"] and caught["passed"]}


def tightness(small: bool, seed: int | None) -> tuple[str, dict]:
    return run("tightness", str(1 if seed is None else seed), *(["--small"] if small else []))
