"""A real daemon that is killed while a job trains."""

import signal
import subprocess
import time
from pathlib import Path

import torch
from torch import nn

import plumbline
from plumbline import daemon


def start(folder: Path) -> subprocess.Popen:
    socket = folder / "d.sock"
    socket.unlink(missing_ok=True)
    flags = [f"--listen=unix:{socket}", f"--data-dir={folder}/data", "--metrics-listen=127.0.0.1:0"]
    process = subprocess.Popen([daemon.binary(), *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not socket.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_training_goes_on_and_the_gap_is_counted(tmp_path: Path) -> None:
    process = start(tmp_path)
    try:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        audit = plumbline.watch(model, optimizer, f"unix:{tmp_path}/d.sock", job="restart", every=1)

        def step() -> None:
            with audit.step():
                model(torch.randn(4, 8)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()

        def verdicts_after(count: int) -> list[plumbline.Verdict]:
            deadline = time.monotonic() + 60
            while len(audit.verdicts()) < count:
                assert time.monotonic() < deadline, audit.errors()
                step()
                audit.flush(10)
            return audit.verdicts()

        verdicts_after(2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 20
        while audit.missed() < 3:
            assert time.monotonic() < deadline
            step()
            time.sleep(0.01)
        process = start(tmp_path)
        verdicts = verdicts_after(4)
        steps = [verdict.step for verdict in verdicts]
        assert steps == sorted(set(steps))
        assert steps[:2] == [0, 1]
        assert steps[-1] - steps[1] > 3
        assert all(verdict.verdict != "TYPE_II" for verdict in verdicts)
        assert audit.errors() == {}
        audit.close()
    finally:
        process.kill()
        process.wait()
