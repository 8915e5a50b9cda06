"""The plumb command against a live daemon."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from pathlib import Path

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
    (row,) = [line for line in table if line.startswith(f"{job} ")]
    assert row.split()[1:5] == ["1", "1", "1", f"default/{job}/{job[4:]}/0/2"]
    (line,) = run_plumb(shared_daemon, "jobs", "--job", job, "--json").stdout.splitlines()
    assert json.loads(line)["type_ii"] == "1"


def test_explain(shared_daemon: DaemonProcess, job: str, run: str) -> None:
    ran = run_plumb(shared_daemon, "explain", f"default/{job}/{run}/0/2")
    assert ran.returncode == 2
    assert ran.stdout.startswith("TYPE_II") and "aten::add.Tensor at train.py:7" in ran.stdout
    ran = run_plumb(shared_daemon, "explain", f"default/{job}/{run}/0/2", "--json")
    assert json.loads(ran.stdout)["suspect"]["source"] == "train.py:7"


def on_terminal(daemon: DaemonProcess, columns: int, *arguments: str, **environment: str) -> list[str]:
    """Lines that plumb writes to a terminal of that width."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        more = {"TERM": "xterm", "PLUMBLINE_SERVER": daemon.address, **environment}
        os.execve(plumb(), [str(plumb()), *arguments], {**kept, **more})
    written = b""
    with contextlib.suppress(OSError):  # The terminal's end is an error of input.
        while part := os.read(terminal, 1 << 16):
            written += part
    os.close(terminal)
    os.waitpid(pid, 0)
    return written.decode().replace("\r\n", "\n").splitlines()


def test_a_terminal_gets_colours_and_lines_of_its_width(shared_daemon: DaemonProcess, job: str, run: str) -> None:
    step = f"default/{job}/{run}/0/2"
    for arguments in (["explain", step], ["verdicts", "--job", job], ["jobs", "--job", job]):
        coloured = on_terminal(shared_daemon, 40, *arguments)
        assert any("\x1b[1;31m" in line for line in coloured), coloured
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            plain = on_terminal(shared_daemon, 40, *arguments, **environment)
            assert plain == [re.sub(r"\x1b\[[\d;]*m", "", line) for line in coloured]
            assert max(map(len, plain)) <= 40, plain
            assert any("TYPE_II" in line for line in plain)
        assert "\x1b" not in run_plumb(shared_daemon, *arguments).stdout, "a file gets no colours"


def test_watch_on_a_terminal_is_one_screen(shared_daemon: DaemonProcess, job: str) -> None:
    lines = on_terminal(shared_daemon, 80, "watch", "--job", job, "--past", "--count", "3", NO_COLOR="1")
    last = "\n".join(lines).split("\x1b[H\x1b[2J")[-1]
    assert last.startswith("1 TYPE_II, 1 INCONCLUSIVE, 1 TYPE_I\n")
    assert last.count("\n") <= 24


def test_explain_shows_source_lines(shared_daemon: DaemonProcess, job: str, run: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("".join(f"line {n}\n" for n in range(1, 12)))
    step = f"default/{job}/{run}/0/2"
    text = run_plumb(shared_daemon, "explain", step, "--sources", str(tmp_path)).stdout
    assert "  target  train.py:7\n    4  line 4\n" in text and "  > 7  line 7\n" in text
    assert "line 7" not in run_plumb(shared_daemon, "explain", step, "--sources=").stdout


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
        said = ran.stdout.partition("\n  Flags from ")[0]
        assert max(map(len, said.splitlines())) <= 80, said


def test_output_that_cannot_be_written_is_an_error(shared_daemon: DaemonProcess, job: str) -> None:
    for command in (["jobs"], ["verdicts", "--job", job], ["formats"], ["watch", "--past", "--count", "1"]):
        with open("/dev/full", "w") as full:
            ran = subprocess.run(
                [str(plumb()), *command, "--server", shared_daemon.address],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
            )
        assert (ran.returncode, ran.stderr) == (1, "plumb: cannot write to standard output\n"), command


def test_nobody_answers(shared_daemon: DaemonProcess) -> None:
    ran = run_plumb(shared_daemon, "jobs", "--server", "unix:/nonexistent.sock")
    assert ran.returncode == 1
    assert ran.stderr.startswith("plumb: UNAVAILABLE: no answer from unix:/nonexistent.sock")
