"""A11 over steps, as a job: autocast with master weights in fp32 and a gradient scaler, paired with fp32."""

import copy

import torch
import torch.nn.functional as F
from models import MLP, normal
from scenario import TYPE_I
from torch import nn

import plumbline

STEPS = 4


def train(model: nn.Module, server: str, run: str, reference: str | None, autocast: bool) -> list:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=autocast)
    with plumbline.watch(
        model, optimizer, server, job="mixed-training", run=run, reference=reference, every=1
    ) as audit:
        for step in range(STEPS):
            with audit.step():
                with torch.autocast("cpu", torch.float16, enabled=autocast):
                    loss = F.cross_entropy(model(normal(step, 16, 32)), torch.arange(16) % 8)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        assert audit.flush()
        return audit.verdicts()


def test_every_step_is_rounding_and_drift_is_shown(server: str) -> None:
    torch.manual_seed(5)
    plain = MLP()
    mixed = copy.deepcopy(plain)
    train(plain, server, "fp32", None, autocast=False)
    verdicts = train(mixed, server, "mixed", "fp32", autocast=True)
    assert [v.verdict for v in verdicts] == [TYPE_I] * STEPS, "\n".join(v.explain() for v in verdicts)
    drift = [v.taps["loss"].drift for v in verdicts]
    assert all(value > 0 for value in drift), drift
    assert all(any("carried drift" in note for note in v.notes) for v in verdicts[1:])
    assert all(v.coverage.opaque == 0 for v in verdicts)
