"""What the capture does where a device has kernels that the processor lacks."""

import importlib

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import plumbline
from plumbline.schema import OperatorInfo

compare = importlib.import_module("plumbline.compare")


def test_what_a_device_has_a_kernel_for_is_not_taken_apart_there() -> None:
    """CUDA computes torch.rms_norm by one kernel, a processor by the operations that it is made up of."""
    info = OperatorInfo(torch.ops.aten._fused_rms_norm.default)
    with FakeTensorMode():
        on_a_device = torch.empty(2, 4, device="cuda")
    assert not info.composed((on_a_device, [4], None, None))
    assert info.composed((torch.ones(2, 4), [4], None, None))


def test_a_default_device_of_the_program_is_not_the_clients(server: str) -> None:
    """Tensors that hold nothing, where the client would make its own."""
    torch.manual_seed(1)
    net, x = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.1)), torch.randn(3, 8)
    with torch.device("meta"):
        moved = plumbline.compare(lambda: {"y": x.t()}, lambda: {"y": x.permute(1, 0)}, server)
        with plumbline.watch(net, server=server, job="default", every=1) as audit:
            with audit.step():
                net(x).square().mean().backward()
            assert audit.flush(60) and not audit.errors()
            (verdict,) = audit.verdicts()
    assert (moved.verdict, verdict.verdict) == ("TYPE_I", "TYPE_I")


def test_what_has_a_kernel_nowhere_is_taken_apart_everywhere() -> None:
    info = OperatorInfo(torch.ops.aten.rms_norm.default)
    with FakeTensorMode():
        on_a_device = torch.empty(2, 4, device="cuda")
    assert info.composed((on_a_device, [4])) and info.composed((torch.ones(2, 4), [4]))


def test_programs_on_the_host_have_the_hosts_profile_beside_a_device_in_use(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    """Where a process has used CUDA for something else."""
    expected = compare.device_profile([torch.device("cpu")])
    guessed = {torch.device("cuda"): "cuda-sm90", torch.device("cpu"): expected}
    monkeypatch.setattr(compare, "_uses_cuda", lambda: True)
    monkeypatch.setattr(compare, "_random_states", lambda: [torch.get_rng_state()])
    monkeypatch.setattr(compare, "device_profile", lambda devices: guessed[next(iter(devices))])
    torch.manual_seed(1)
    x = torch.randn(64, 64)
    verdict = plumbline.compare(lambda: {"y": x.sqrt().nansum()}, lambda: {"y": x.flip(0).sqrt().nansum()}, server)
    assert (verdict.verdict, verdict.profile) == ("TYPE_I", expected), verdict.explain()


def test_a_reference_that_alone_computes_otherwise(server: str) -> None:
    """That is known when it has run, and the target's stream is there before."""
    x = torch.randn(16, 16)

    def flushing() -> dict[str, torch.Tensor]:
        torch.set_flush_denormal(True)
        return {"y": x.flip(0).sqrt().nansum()}

    def plain() -> dict[str, torch.Tensor]:
        torch.set_flush_denormal(False)
        return {"y": x.sqrt().nansum()}

    expected = compare.device_profile([torch.device("cpu")])
    try:
        verdict = plumbline.compare(plain, flushing, server)
    finally:
        torch.set_flush_denormal(False)
    assert (verdict.verdict, verdict.profile) == ("TYPE_I", expected), verdict.explain()
