"""Every grpcurl line of server/README.md works as it is printed, with the real grpcurl, on a daemon that has its jobs.

Only the socket's path is another. Lines are those of the README's ```sh blocks that begin with "grpcurl".
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from query_support import send, type_i, type_ii
from stream_client import Client
from stream_daemon import ROOT, DaemonProcess

GRPCURL = Path(sys.executable).parent / "grpcurl"
PRINTED_SOCKET = "/run/plumbline.sock"
SERVICE = "plumbline.v1.VerdictService"
QUERIES = {
    "ListJobs",
    "GetJob",
    "ListVerdicts",
    "GetVerdict",
    "WatchVerdicts",
    "GetStats",
    "ExplainVerdict",
    "ListAudits",
    "GetServerInfo",
}
STEPS = (0, 8, 16, 24)
STEP_TYPE_II = 32


def printed_lines() -> list[str]:
    text = (ROOT / "server" / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.split()[:1] == ["grpcurl"]]


def question(line: str) -> dict[str, object]:
    words = shlex.split(line)
    return json.loads(words[words.index("-d") + 1]) if "-d" in words else {}


def named_steps(lines: list[str]) -> dict[tuple[str, str], set[int]]:
    """The steps to audit so that every line finds something: by job and run."""
    steps: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for asked in map(question, lines):
        if "id" in asked:
            project, job, run, rank, step = str(asked["id"]).split("/")
            assert (project, rank) == ("default", "0")
            steps[job, run].update((*STEPS, int(step)))
        named = {**asked, **dict(asked.get("filter", {}))}
        if "job" in named:
            steps[str(named["job"]), str(named.get("run", "run-1"))].update(STEPS)
    return steps


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess()
    client = Client(daemon.address)
    [trace_id] = {trace_id for line in printed_lines() for trace_id in re.findall(r'"trace_id":"(\w+)"', line)}
    for (job, run), steps in named_steps(printed_lines()).items():
        assert max(steps) < STEP_TYPE_II
        stream = client.stream(run, job)
        last = type_ii(STEP_TYPE_II)
        last.trace_id = trace_id
        send(stream, *(type_i(step) for step in sorted(steps)), last)
        stream.close()
    client.close()
    yield daemon
    daemon.close()


def command(line: str, daemon: DaemonProcess) -> list[str]:
    words = shlex.split(line)
    assert PRINTED_SOCKET in words, f"expected the socket {PRINTED_SOCKET} in: {line}"
    socket = daemon.address.removeprefix("unix:")
    return [str(GRPCURL), *(socket if word == PRINTED_SOCKET else word for word in words[1:])]


def test_the_readme_shows_every_query() -> None:
    assert {match for line in printed_lines() for match in re.findall(rf"{SERVICE}/(\w+)", line)} == QUERIES


@pytest.mark.parametrize("line", [line for line in printed_lines() if "/WatchVerdicts" not in line])
def test_a_printed_line_works(line: str, daemon: DaemonProcess) -> None:
    ran = subprocess.run(command(line, daemon), capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    words = shlex.split(line)
    if {"list", "describe"} & set(words):
        assert ran.stdout.strip()
        return
    answer = json.loads(ran.stdout)
    method = words[-1].rpartition("/")[2]
    asked = question(line)
    if method == "ListVerdicts":
        filters = dict(asked.get("filter", {}))
        assert answer["verdicts"]
        for field in {"verdict", "trace_id"} & set(filters):
            assert {verdict[field] for verdict in answer["verdicts"]} == {filters[field]}
    elif method in ("GetVerdict", "ExplainVerdict"):
        assert answer.get("verdict") and asked["id"] in (answer.get("id"), dict_of(answer["verdict"]).get("id"))
    elif method == "ListJobs":
        assert {job["job"] for job in answer["jobs"]} == {job for job, _ in named_steps(printed_lines())}
    elif method == "GetJob":
        assert answer["job"] == asked["job"] and int(answer["steps"]) > 0
    elif method == "GetStats":
        assert int(answer["verdicts"]) > 0 and answer["audit_seconds"] > 0
    elif method == "ListAudits":
        assert answer == {}, "every step has its answer"
    elif method == "GetServerInfo":
        assert answer["version"] and answer["limits"] and answer["flags"]
    else:
        assert answer  # Health and the like.


def dict_of(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


@pytest.mark.parametrize("line", [line for line in printed_lines() if "/WatchVerdicts" in line])
def test_a_printed_watch_shows_verdicts_until_it_is_interrupted(line: str, daemon: DaemonProcess) -> None:
    with subprocess.Popen(command(line, daemon), stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        text = ""
        while not text.rstrip().endswith("\n}"):  # grpcurl indents what is inside a message.
            more = watch.stdout.readline()
            assert more, f"the watch ended: {text}"
            text += more
        watch.terminate()
    assert json.loads(text)["verdict"] in ("OUTCOME_TYPE_I", "OUTCOME_TYPE_II", "OUTCOME_INCONCLUSIVE")


def test_errors_come_with_the_field_at_fault(daemon: DaemonProcess) -> None:
    line = f"""grpcurl -plaintext -unix -d '{{"page_size":-1}}' {PRINTED_SOCKET} {SERVICE}/ListVerdicts"""
    ran = subprocess.run(command(line, daemon), capture_output=True, text=True, timeout=60)
    assert ran.returncode != 0
    assert "InvalidArgument" in ran.stderr and "page_size: expected 0 or more, found -1" in ran.stderr
