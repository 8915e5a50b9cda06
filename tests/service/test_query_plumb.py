"""The plumb command against a live daemon."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from query_support import inconclusive, plumb, run_plumb, send, type_i, type_ii
from stream_client import Client
from stream_daemon import DaemonProcess, binary


@pytest.fixture
def job(client: Client, run: str) -> str:
    """A job with a verdict of each outcome, steps 0 to 2."""
    name = "job-" + run
    stream = client.stream(run, name)
    send(stream, type_i(0), inconclusive(1), type_ii(2))
    stream.close()
    return name


def test_exit_codes(shared_daemon: DaemonProcess, job: str) -> None:
    assert run_plumb(shared_daemon, "verdicts", "--job", job).returncode == 2
    assert run_plumb(shared_daemon, "verdicts", "--job", job, "--step_max", "1").returncode == 3
    assert run_plumb(shared_daemon, "verdicts", "--job", job, "--verdict", "TYPE_I").returncode == 0
    assert run_plumb(shared_daemon, "verdicts", "--job", "none").returncode == 0
    for arguments in (["verdicts", "--verdict", "MAYBE"], ["verdicts", "--step_min", "-1"], ["explain", "none"], []):
        ran = run_plumb(shared_daemon, *arguments)
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1), arguments


def test_verdicts_as_json(shared_daemon: DaemonProcess, job: str, run: str) -> None:
    ran = run_plumb(shared_daemon, "verdicts", "--job", job, "--json")
    verdicts = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [verdict["verdict"] for verdict in verdicts] == ["TYPE_I", "INCONCLUSIVE", "TYPE_II"]
    assert [verdict["id"] for verdict in verdicts] == [f"default/{job}/{run}/0/{step}" for step in range(3)]


def test_jobs(shared_daemon: DaemonProcess, job: str) -> None:
    table = run_plumb(shared_daemon, "jobs").stdout.splitlines()
    (row,) = [line for line in table if f" {job} " in line]
    assert row.endswith(f"default/{job}/{job[4:]}/0/2")
    (line,) = run_plumb(shared_daemon, "jobs", "--job", job, "--json").stdout.splitlines()
    assert json.loads(line)["type_ii"] == "1"


def test_explain(shared_daemon: DaemonProcess, job: str, run: str) -> None:
    ran = run_plumb(shared_daemon, "explain", f"default/{job}/{run}/0/2")
    assert ran.returncode == 2
    assert ran.stdout.startswith("TYPE_II") and "aten::add.Tensor at train.py:7" in ran.stdout
    ran = run_plumb(shared_daemon, "explain", f"default/{job}/{run}/0/2", "--json")
    assert json.loads(ran.stdout)["suspect"]["source"] == "train.py:7"


def test_watch_ends_at_the_count_or_on_a_signal(shared_daemon: DaemonProcess, job: str) -> None:
    ran = run_plumb(shared_daemon, "watch", "--job", job, "--past", "--count", "2")
    assert (ran.returncode, len(ran.stdout.splitlines())) == (3, 2)
    for number in (signal.SIGINT, signal.SIGTERM):
        command = [str(plumb()), "watch", "--job", job, "--past", "--server", shared_daemon.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            lines = [watch.stdout.readline() for _ in range(3)]
            assert "TYPE_II" in lines[2]
            watch.send_signal(number)
            assert watch.wait(30) == 2


def test_help_lists_the_flags() -> None:
    for program, flag in ((plumb(), "--step_min"), (binary(), "--listen")):
        ran = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=False)
        assert flag in ran.stdout and "No flags matched" not in ran.stdout


def test_nobody_answers(shared_daemon: DaemonProcess) -> None:
    ran = run_plumb(shared_daemon, "jobs", "--server", "unix:/nonexistent.sock")
    assert ran.returncode == 1
    assert ran.stderr.startswith("plumb: UNAVAILABLE: no answer from unix:/nonexistent.sock")
