"""The folder that runs where nothing of ours is installed: its own loader and libraries, its own client."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from stream_daemon import ROOT, START_S_MAX, STOP_S_MAX, binary

AUDIT = """
import sys, torch, plumbline
model = torch.nn.Linear(4, 1)
with plumbline.watch(model, None, sys.argv[1], job="tiny", every=1) as audit:
    with audit.step():
        model(torch.ones(2, 4)).sum().backward()
    assert audit.flush(60) and not audit.errors()
    print(plumbline.__file__, [verdict.verdict for verdict in audit.verdicts()])
"""


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def test_a_bundle_needs_nothing_of_the_machine(tmp_path: Path) -> None:
    folder, path = tmp_path / "bundle", tmp_path / "d.sock"
    build = binary().parents[1]
    subprocess.run([ROOT / "deploy/bundle", "--from", build, folder], check=True, capture_output=True)
    flags = [f"--listen=unix:{path}", f"--data-dir={tmp_path}/data"]
    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen([folder / "bin/plumblined", *flags], env={}, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_S_MAX
        while not answers(path):
            assert daemon.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.01)
        mapped = re.findall(r"/\S*\.so\S*", Path(f"/proc/{daemon.pid}/maps").read_text())
        assert mapped and {each for each in mapped if not each.startswith(f"{folder}/lib/")} == set()
        environment = {"PYTHONPATH": str(folder / "python")}
        command = [sys.executable, "-c", AUDIT, f"unix:{path}"]
        audited = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert audited.stdout == f"{folder}/python/plumbline/__init__.py ['TYPE_I']\n", audited.stderr
        listed = subprocess.run(
            [folder / "bin/plumb", "jobs", "--server", f"unix:{path}"],
            env={},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "tiny" in listed.stdout
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(STOP_S_MAX) == 0


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    made = subprocess.run([ROOT / "deploy/bundle", tmp_path], capture_output=True, text=True, check=False)
    assert made.returncode == 1 and f"{tmp_path}: expected a new or an empty folder" in made.stderr
