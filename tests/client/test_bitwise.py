"""Training is bitwise the same with the audit on and off."""

import pytest
import torch
from recording_daemon import RecordingDaemon
from training import SETUPS, Run, Setup

import plumbline

STEPS = 20


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_weights_after_twenty_steps(setup: Setup, daemon: RecordingDaemon) -> None:
    plain = Run(setup)
    for _ in range(STEPS):
        plain.step()
    watched = Run(setup)
    audit = plumbline.watch(watched.model, watched.optimizer, daemon.address, job="bitwise", every=3)
    for _ in range(STEPS):
        with audit.step():
            watched.step()
        assert audit.flush(30)
    assert audit.missed() == 0
    audit.close()
    assert daemon.step_numbers() == list(range(0, STEPS, 3))
    assert daemon.violations == []
    expected = plain.weights()
    for name, value in watched.weights().items():
        assert torch.equal(value, expected[name]), name
    assert torch.equal(torch.get_rng_state(), _rng_after(setup))


def _rng_after(setup: Setup) -> torch.Tensor:
    run = Run(setup)
    for _ in range(STEPS):
        run.step()
    return torch.get_rng_state()
