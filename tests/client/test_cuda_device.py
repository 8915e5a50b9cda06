"""The real path on a device: training there, content staged there, the daemon's worker there. Needs a plumblined that
was built with CUDA (PLUMBLINED, as deploy/bundle makes it)."""

import re
import urllib.request

import pytest
import torch
from test_shared import free_port
from torch import nn

import plumbline
from plumbline import daemon

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def train(address: str | None, job: str) -> tuple[list[torch.Tensor], list[plumbline.Verdict]]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batches = [torch.randn(64, 512, device="cuda") for _ in range(3)]

    def step(batch: torch.Tensor) -> None:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    verdicts = []
    if address is None:
        for batch in batches:
            step(batch)
    else:
        with plumbline.watch(model, optimizer, address, job=job, every=1) as audit:
            for batch in batches:
                with audit.step():
                    step(batch)
                assert audit.flush(60)
            assert not audit.errors()
            verdicts = list(audit.verdicts())
    return [parameter.detach().cpu() for parameter in model.parameters()], verdicts


def test_a_step_on_a_device_is_audited_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_CUDA_STAGING_MIB", "256")
    port = free_port()
    with daemon.private("--workers=cuda:0,cpu", f"--metrics-listen=127.0.0.1:{port}") as address:
        plain, _ = train(None, "")
        watched, verdicts = train(address, "device")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page = answer.read().decode()
    assert [verdict.verdict for verdict in verdicts] == ["TYPE_I"] * 3
    assert {verdict.message.backend for verdict in verdicts} == {"cuda:0"}
    taken = re.search(r'^plumbline_ingest_bytes_total\{transport="cuda_ipc"\} (\S+)$', page, re.MULTILINE)
    assert taken and float(taken.group(1)) >= 3 * 4 * 512 * 1024
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
