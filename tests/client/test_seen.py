"""The pytest plugin, in a pytest of its own, and what else people see of the client."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from recording_daemon import RecordingDaemon
from test_verdict_text import verdict
from torch import nn

import plumbline
from plumbline import Verdict, progress
from plumbline.v1 import verdict_pb2 as pb

SUITE = """
import torch, plumbline
from plumbline import Verdict
from plumbline.v1 import verdict_pb2 as pb

def test_server(plumbline_server):
    assert plumbline.compare(lambda: {"x": torch.ones(3).sum()}, None, plumbline_server).verdict == "TYPE_I"

def test_same_server(plumbline_server, request):
    print("ADDRESS", plumbline_server)

def test_differ():
    one = pb.Verdict(verdict=pb.OUTCOME_TYPE_I, sentence="Rounding.")
    one.taps.add(name="loss", outcome=pb.OUTCOME_TYPE_I, surprise=1)
    one.taps.add(name="grad:w", outcome=pb.OUTCOME_TYPE_I, surprise=0)
    other = pb.Verdict(verdict=pb.OUTCOME_TYPE_II, grade=pb.GRADE_PROVEN, sentence="A bug.")
    other.taps.add(name="loss", outcome=pb.OUTCOME_TYPE_II, surprise=float("inf"))
    other.taps.add(name="grad:w", outcome=pb.OUTCOME_TYPE_I, surprise=0)
    assert Verdict(one) == Verdict(other)
"""


KERNEL = """
import plumbline
import torch


def test_mean(plumbline_server):
    x = torch.arange(1.0, 9)
    plumbline.testing.assert_equivalent(lambda: {"y": x.sum() / 7}, lambda: {"y": x.mean()}, plumbline_server)
"""


def installed() -> bool:
    """Whether pytest loads the plugin by itself; it takes it once only."""
    return any(entry.value == "plumbline_pytest" for entry in entry_points(group="pytest11"))


def run_pytest(tmp_path: Path, *arguments: str) -> str:
    (tmp_path / "test_suite.py").write_text(SUITE)
    plugin = [] if installed() else ["-p", "plumbline_pytest"]
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-s", *arguments]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    return ran.stdout + ran.stderr


def test_fixture_and_diff(tmp_path: Path) -> None:
    said = run_pytest(tmp_path)
    assert "2 passed" in said and "1 failed" in said, said
    assert "ADDRESS unix:" in said
    for line in (
        "E       assert verdicts that differ",
        "verdict: TYPE_I  surprise nan != TYPE_II PROVEN surprise nan",
        "sentence: Rounding. != A bug.",
        "tap loss: TYPE_I surprise 1 != TYPE_II surprise inf",
    ):
        assert line in said, said
    assert "grad:w: " not in said.partition("verdicts that differ")[2], "taps of which both say the same"


def test_a_failure_shows_the_callers_line_and_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "test_kernel.py").write_text(KERNEL)
    plugin = [] if installed() else ["-p", "plumbline_pytest"]
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", tmp_path / "test_kernel.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    said = ran.stdout.partition("= FAILURES =")[2]
    assert said.count(">  ") == 1 and ">       plumbline.testing.assert_equivalent(" in said, said
    assert "E       TYPE_II (PROVEN)  cause: mathematics" in said and "E       suspect: test_kernel.py:" in said, said
    assert len(said.splitlines()) <= 24, said


def test_a_given_server_is_used(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, "--plumbline-server=unix:///nowhere.sock", "-k", "same_server")
    assert "ADDRESS unix:///nowhere.sock" in said and "1 passed" in said, said


def test_pytest_loads_the_plugin_without_pytorch() -> None:
    code = "import sys, plumbline_pytest; assert 'torch' not in sys.modules and 'plumbline' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_verdicts_are_equal_by_what_they_say() -> None:
    one, other = verdict(), verdict()
    other.message.id, other.message.step = "default/job/run/0/4", 4
    assert one == other and hash(one) == hash(other)
    other.message.taps[0].outcome = pb.OUTCOME_TYPE_II
    assert one != other and one != "TYPE_II"


def test_html_escapes_what_programs_are_called() -> None:
    message = pb.Verdict(verdict=pb.OUTCOME_TYPE_II, grade=pb.GRADE_PROVEN, sentence="<script>alert(1)</script> & more")
    message.suspect.op = "<img src=x>"
    shown = Verdict(message)._repr_html_()
    assert "<script" not in shown and "<img" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in shown and "TYPE_II (PROVEN)" in shown


def test_a_type_ii_is_one_line_of_the_log(daemon: RecordingDaemon, caplog: pytest.LogCaptureFixture) -> None:
    daemon.outcome = lambda step: pb.OUTCOME_TYPE_II
    model = nn.Linear(2, 1)
    with (
        caplog.at_level(logging.WARNING, "plumbline"),
        plumbline.watch(model, None, daemon.address, job="j", every=1) as audit,
    ):
        with audit.step():
            model(torch.ones(1, 2)).sum().backward()
        assert audit.flush(60)
    (line,) = [record.getMessage() for record in caplog.records if "TYPE_II" in record.getMessage()]
    assert "\n" not in line and line.startswith("plumbline: step 0: TYPE_II")


class Terminal(io.StringIO):
    """Standard error of a terminal, which tells when something was written that `until` wants."""

    def __init__(self, until: str, seen: threading.Event) -> None:
        super().__init__()
        self._until, self._seen = until, seen

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._until in self.getvalue():
            self._seen.set()
        return written


def test_progress_is_shown_of_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "REFRESHED_EVERY_S", 0.001)
    seen = threading.Event()
    terminal = Terminal("plumbline: audit [3/4", seen)
    monkeypatch.setattr(sys, "stderr", terminal)

    with progress.Progress(("start", "the reference runs", "the target runs", "audit")) as shown:
        shown.at("audit")
        assert seen.wait(60), terminal.getvalue()


def test_nothing_is_shown_of_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal("x", threading.Event())
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.Progress(("audit",)) as shown:
        shown.at("audit")
    assert terminal.getvalue() == ""
