"""The command line of `python -m plumbline run`."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

EPILOG = """Everything behind SCRIPT is the script's own. Its output and its exit status are what they would be without
this; what Plumbline has to say goes to standard error. PLUMBLINE_DISABLE=1 runs the script by itself."""


def parser() -> argparse.ArgumentParser:
    said = argparse.ArgumentParser(
        prog="python -m plumbline run",
        usage="python -m plumbline run [OPTION]... (SCRIPT | -m MODULE) [ARGUMENT]...",
        description="Audits the training that a script does, without a change to the script.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    said.add_argument("--every", type=int, default=100, metavar="N", help="audit one step in N (default: %(default)s)")
    said.add_argument("--server", metavar="ADDRESS", help="the daemon's (default: $PLUMBLINE_SERVER)")
    said.add_argument("--job", metavar="NAME", help="default: the script's name")
    said.add_argument("--project", metavar="NAME")
    said.add_argument("--run", metavar="NAME", help="name of this run (default: a fresh one)")
    said.add_argument("--reference", metavar="RUN", help="the run to pair with")
    said.add_argument("--keep-trace", action="store_true", default=None, help="this run may be another's reference")
    said.add_argument("--golden", metavar="NAME", help="recorded run to judge this one against")
    said.add_argument("--record-golden", metavar="NAME", help="keep what later runs need, under this name")
    said.add_argument("--profile", metavar="NAME", help="arithmetic of the device")
    said.add_argument("--alpha", type=float, metavar="P", help="probability of a false alarm in this run")
    said.add_argument("--capture", choices=("leaves", "outputs"))
    said.add_argument(
        "--scope", action="append", metavar="PATTERN", help="modules to audit, or rotate; may be repeated"
    )
    said.add_argument(
        "--budget", action="append", metavar="LIMIT", help="a share such as 0.02, or a rate such as 50MB/s"
    )
    said.add_argument("--ranks", type=int, metavar="N", help="ranks that are judged together")
    said.add_argument("--wait", action="store_true", help="wait for each verdict, so that no sampled step is left out")
    said.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    said.add_argument("script", metavar="SCRIPT")
    said.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    return said


def watched(said: argparse.Namespace) -> dict[str, Any]:
    """Options of watch(), as far as they were given."""
    names = ("server", "run", "project", "reference", "keep_trace", "golden", "record_golden", "profile", "alpha")
    options = {name: getattr(said, name) for name in (*names, "capture", "ranks", "every")}
    if said.scope:
        options["scope"] = "rotate" if said.scope == ["rotate"] else said.scope
    if said.budget:
        options["budget"] = tuple(_limit(limit) for limit in said.budget)
    options["job"] = said.job or job_name(said.script)
    return {name: value for name, value in options.items() if value is not None}


def job_name(script: str) -> str:
    name = os.path.basename(script).removesuffix(".py")
    return re.sub(r"[^A-Za-z0-9._:-]", "-", name)[:128] or "script"


def _limit(limit: str) -> float | str:
    try:
        return float(limit)
    except ValueError:
        return limit
