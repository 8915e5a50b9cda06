"""The profile that is chosen from what is known of devices; needs none of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import plumbline
from plumbline import daemon, device
from plumbline.device import Facts, profile_of

PROFILES = Path(__file__).resolve().parents[2] / "deploy" / "profiles"
CPU = Facts("cpu", "AVX512")
A100 = Facts("cuda", "NVIDIA A100", (8, 0))
H100 = Facts("cuda", "NVIDIA H100", (9, 0))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([CPU], "pytorch-cpu-avx512"),
        ([Facts("cpu", "AVX512", flushes=True)], "pytorch-cpu-amx"),
        ([Facts("cpu", "AVX2")], "pytorch-cpu-avx2"),
        ([Facts("cpu", "AVX2", flushes=True)], "pytorch-cpu-amx"),  # oneDNN was told otherwise than PyTorch.
        ([Facts("cpu", "DEFAULT")], "pytorch-cpu"),
        ([Facts("cpu", "SVE256")], "pytorch-cpu"),
        ([], "pytorch-cpu"),
        ([A100], "cuda-sm80"),
        ([Facts("cuda", "NVIDIA L4", (8, 9))], "cuda-sm80"),
        ([H100, CPU], "cuda-sm90"),
        ([H100, A100], "cuda-sm80"),
        ([Facts("cuda", "H100", (9, 0), tf32=True)], "cuda-sm90+tf32"),
        ([Facts("cuda", "H100", (9, 0), tf32=True, reduced=True)], "cuda-sm90+reduced+tf32"),
        ([Facts("cuda", "H100", (9, 0), tf32=True, tf32_convolutions=True)], "cuda-sm90+tf32"),
        ([Facts("cuda", "H100", (9, 0), tf32_convolutions=True)], "cuda-sm90+tf32-convolutions"),
        ([H100, Facts("cuda", "A100", (8, 0), fp16_accumulation=True)], "cuda-sm80+fp16-accumulation"),
        ([Facts("cuda", "V100", (7, 0))], "unknown"),
        ([Facts("cuda", "B200", (10, 0), tf32=True)], "unknown"),
        ([Facts("cuda", "MI300", (9, 4), rocm=True)], "unknown"),
        ([Facts("mps")], "unknown"),
        ([Facts("npu", "Ascend910B")], "ascend-910"),
        ([Facts("npu", "Ascend310")], "unknown"),
        ([Facts("npu", "Ascend910B"), H100], "unknown"),
    ],
)
def test_profile_of(facts: list[Facts], expected: str) -> None:
    assert profile_of(facts) == expected
    assert (PROFILES / f"{expected.partition('+')[0]}.textproto").exists()


def test_options_are_the_daemons() -> None:
    source = (PROFILES.parents[1] / "server" / "profile" / "profile_registry.cc").read_text()
    known = re.findall(r'^    \{"([a-z0-9-]+)",', source, re.MULTILINE)
    every = {"reduced": True, "fp16_accumulation": True}
    for tf32 in ({"tf32": True}, {"tf32_convolutions": True}):
        chosen = profile_of([Facts("cuda", "H100", (9, 0), **every, **tf32)]).split("+")[1:]
        assert len(chosen) == 3 and chosen == sorted(chosen)
        assert set(chosen) <= set(known)


def test_flags_of_the_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    holders = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn
    before = [holder.fp32_precision for holder in holders]
    try:
        for chosen, expected in (
            (("ieee", "ieee", "ieee"), (False, False)),
            (("ieee", "tf32", "ieee"), (False, True)),
            (("ieee", "ieee", "tf32"), (False, True)),
            (("tf32", "ieee", "ieee"), (True, False)),
        ):
            for holder, precision in zip(holders, chosen, strict=True):
                holder.fp32_precision = precision
            facts = device.facts_of(torch.device("cuda"))
            assert (facts.tf32, facts.tf32_convolutions) == expected
    finally:
        for holder, precision in zip(holders, before, strict=True):
            holder.fp32_precision = precision
    assert device.facts_of(torch.device("cuda")).reduced  # PyTorch's default.
    capability = torch.backends.cpu.get_cpu_capability()
    assert device.facts_of(torch.device("cpu")).name == capability
    chosen = device.device_profile([torch.device("cpu")])
    assert chosen == device.device_profile([])
    assert chosen in ("pytorch-cpu", "pytorch-cpu-amx", f"pytorch-cpu-{capability.lower()}")  # With nothing beyond it.


def set_flushing() -> None:
    torch.set_flush_denormal(True)


def set_products() -> None:
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"


def set_convolutions() -> None:
    torch.backends.mkldnn.conv.fp32_precision = "bf16"


@pytest.mark.parametrize("change", [set_flushing, set_products, set_convolutions])
def test_arithmetic_that_changes_after_the_profile_was_chosen(change: Callable[[], None]) -> None:
    model = torch.nn.Linear(4, 4)
    precisions = {kind: getattr(torch.backends.mkldnn, kind).fp32_precision for kind in ("matmul", "conv")}
    try:
        with daemon.private() as server, plumbline.watch(model, None, server, job="arithmetic", every=1) as audit:
            for number in range(3):
                if number == 1:
                    change()
                with audit.step():
                    model(torch.ones(2, 4)).sum().backward()
                assert audit.flush()
            assert [(v.step, v.verdict) for v in audit.verdicts()] == [(0, "TYPE_I")]
            assert "changed its arithmetic" in str(audit.errors()[1]) and audit.missed_reason == "arithmetic_changed"
            # Whoever watches from then on asks what holds now; PyTorch's own legacy name for it may raise.
            with plumbline.watch(model, None, server, job="again", every=1) as again:
                with again.step():
                    model(torch.ones(2, 4)).sum().backward()
                assert again.flush() and len(again.verdicts()) == 1
    finally:
        torch.set_flush_denormal(False)
        for kind, precision in precisions.items():
            getattr(torch.backends.mkldnn, kind).fp32_precision = precision
