"""What the scripts show of a build while it runs."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A build that has made one file of two, and goes on when the reader has seen that.
SCRIPT = """
source "$0/deploy/lib/common.sh"
LOGS=$1
build() { echo '[1/2] Building a.cc.o'; read -r <"$LOGS/go"; echo '[2/2] Linking a'; return "$outcome"; }
build_step build build
say built
"""


def run(folder: Path, status: int) -> tuple[int, str]:
    os.mkfifo(folder / "go")
    terminal, end = pty.openpty()
    command = ["bash", "-c", SCRIPT, ROOT, folder]
    with subprocess.Popen(command, stdout=end, stderr=end, env={**os.environ, "outcome": str(status)}) as process:
        os.close(end)
        said = b""
        while part := read(terminal):
            before, said = b"1 of 2 files" in said, said + part
            if not before and b"1 of 2 files, about 0:0" in said:
                (folder / "go").write_text("go on\n")
    os.close(terminal)
    return process.returncode, said.decode()


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Nobody has the other end any more.
        return b""


def test_a_build_tells_how_far_it_is(tmp_path: Path) -> None:
    status, said = run(tmp_path, 0)
    assert status == 0 and "1 of 2 files, about 0:0" in said and said.endswith("built\r\n")


def test_a_build_that_fails_says_so(tmp_path: Path) -> None:
    status, said = run(tmp_path, 7)
    assert status == 7 and "error: build failed (exit status 7)" in said and "\nbuilt" not in said


@pytest.mark.parametrize("status", [0, 7])
def test_without_a_terminal_nothing_is_drawn(tmp_path: Path, status: int) -> None:
    script = SCRIPT.replace('read -r <"$LOGS/go"; ', "")
    command = ["bash", "-c", script, ROOT, tmp_path]
    environment = {**os.environ, "outcome": str(status)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == status and "\033" not in ran.stdout and " of 2 files" not in ran.stdout
