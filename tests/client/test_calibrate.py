"""Calibration on the processor at hand: what is shipped holds, what is made wrong is named, what is written loads."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import shutil
from pathlib import Path

import pytest
import torch

import plumbline
from plumbline.calibrate import arithmetic, functions, start
from plumbline.calibrate.__main__ import main
from plumbline.calibrate.formats import FP16
from plumbline.calibrate.measure import Calibration, Finding
from plumbline.calibrate.profiles import load
from plumbline.daemon import private
from plumbline.device import device_profile
from plumbline.v1.profile_pb2 import DeviceProfile

PROFILES = Path(__file__).resolve().parents[2] / "deploy" / "profiles"
CPU = torch.device("cpu")


def calibrate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    command = ["calibrate", "--device", "cpu", "--quick", "--json", *arguments]
    monkeypatch.setattr("sys.argv", command)
    status = main()
    return status, json.loads(capsys.readouterr().out)


def test_the_shipped_profile_holds_and_what_is_written_loads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    written = tmp_path / "profiles"
    shutil.copytree(PROFILES, written)
    status, figures = calibrate(monkeypatch, capsys, "-o", str(written / "a.textproto"))
    assert (status, figures["contradictions"]) == (0, [])
    base = figures["base"]
    assert base.startswith("pytorch-cpu")
    measured = {finding["claim"] for finding in figures["findings"]}
    claims = load("pytorch-cpu")
    assert {f"functions.{item.function}" for item in claims.functions} <= measured
    assert {"sum", "rounding", "flush_subnormals", "variance", "tf32_allowed", "products.bf16"} <= measured
    assert "functions.exp" in figures["looser"]  # Claimed for fused attention too.
    status, figures = calibrate(monkeypatch, capsys, "--base", "unknown", "-o", str(written / "b.textproto"))
    assert (status, figures["contradictions"]) == (0, [])
    known = load(str(written / "b.textproto"))
    assert {item.function for item in known.functions} == set(functions.ELEMENTARY)
    assert known.rounding == DeviceProfile.NEAREST
    assert not known.HasField("split_k")  # Not measured: the widest.
    with private(f"--profiles={written}") as address:
        x = torch.linspace(-3, 3, 64).reshape(8, 8)
        for name in (f"{base}-calibrated", "unknown-calibrated"):
            verdict = plumbline.compare(
                lambda: {"y": (x @ x).tanh().sum()}, lambda: {"y": (x @ x).tanh().sum()}, server=address, profile=name
            )
            assert verdict.verdict == "TYPE_I"


def test_a_profile_made_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (PROFILES / "pytorch-cpu.textproto").read_text()
    for right, wrong in (
        ('"expm1" ulp: 1', '"expm1" ulp: 0.02'),
        ('"cos" ulp: 1 low: -1 high: 1', '"cos" ulp: 1 low: -1 high: 0.5'),
        ("sum { k: 1 factor: 1 }", "sum { k: 1 factor: 0.001 }"),
        ('"fp32" k: 1 factor: 1', '"fp32" k: 1 factor: 0.25'),
    ):
        assert right in text
        text = text.replace(right, wrong)
    base, fixed = tmp_path / "wrong.textproto", tmp_path / "fixed.textproto"
    base.write_text(text)
    status, figures = calibrate(monkeypatch, capsys, "--base", str(base), "-o", str(fixed))
    assert status == 2
    assert figures["contradictions"] == ["functions.cos.high", "functions.expm1", "sum", "products.fp32"]
    worst = next(item for item in figures["findings"] if item["claim"] == "functions.expm1")
    assert "fp32 (" in worst["where"]
    assert "# REFUTED functions.expm1" in fixed.read_text()
    expm1 = next(item for item in load(str(fixed)).functions if item.function == "expm1")
    assert 0.25 < expm1.ulp <= 1  # 0.15 to 0.25 measured, as the processor may be; twice that.


def with_findings(*findings: Finding) -> Calibration:
    return Calibration(DeviceProfile(), [Finding("sum", 1, 0.2, "somewhere"), *findings])


def test_what_was_found_beyond_a_profile_is_an_option_or_all_is_unknown() -> None:
    def refuted(claim: str, measured: object) -> Finding:
        return Finding(claim, 1, measured, "somewhere", contradicted=True)

    assert start.options(with_findings()) == []
    beyond = [refuted("functions.log", 1.2), refuted("products.fp32.flushes", True), refuted("flush_subnormals", True)]
    assert start.options(with_findings(*beyond)) == ["flush", "log=2.5"]
    for claim in (
        "functions.log.low",
        "sum",
        "products.bf16",
        "products.bf16.accumulator_bits",
        "rounding",
        "variance",
    ):
        assert start.options(with_findings(*beyond, refuted(claim, 3))) is None
    assert start.options(with_findings(refuted("functions.log", math.inf))) is None
    assert start.options(with_findings(refuted("functions.log", 5000.0))) is None


def test_a_client_finds_what_its_processor_does_beyond_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    before, dtype = torch.get_rng_state(), torch.get_default_dtype()
    chosen = device_profile([CPU])
    assert torch.equal(before, torch.get_rng_state())
    torch.set_default_dtype(torch.float64)
    try:
        start._widened.cache_clear()
        assert device_profile([CPU]) == chosen  # Whatever the program has set for itself.
    finally:
        torch.set_default_dtype(dtype)

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return torch.cos(x) * (1 + 2.0**-21) if x.dtype == torch.float32 else torch.cos(x)

    monkeypatch.setitem(
        functions.ELEMENTARY, "cos", functions.Elementary(wrong, functions.ELEMENTARY["cos"].reference, ())
    )
    start._widened.cache_clear()
    name, _, option = device_profile([CPU]).partition("+")
    assert name == chosen
    assert 6 < float(option.removeprefix("cos=")) < 10  # 4 and a little were measured; twice that.

    def program() -> dict[str, torch.Tensor]:
        return {"y": torch.linspace(-3, 3, 64).cos().sum()}

    with private() as address:
        verdict = plumbline.compare(program, program, server=address)
    assert (verdict.verdict, verdict.profile) == ("TYPE_I", f"{chosen}+{option}")
    monkeypatch.setattr(start, "Calibrator", lambda *_: 1 / 0)
    start._widened.cache_clear()
    assert device_profile([CPU]) == "unknown"
    start._widened.cache_clear()


def test_the_start_of_a_client_uses_one_thread_and_leaves_the_others_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    measured = start.Calibrator.run

    def run(calibrator: start.Calibrator, *, fails: bool = False) -> Calibration:
        seen.append(torch.get_num_threads())
        return 1 / 0 if fails else measured(calibrator)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        start._widened.cache_clear()
        chosen = device_profile([CPU])
        for profile, fails in ((chosen, False), ("unknown", True)):
            start._widened.cache_clear()
            monkeypatch.setattr(start.Calibrator, "run", functools.partialmethod(run, fails=fails))
            assert (device_profile([CPU]), torch.get_num_threads()) == (profile, 2)
    finally:
        start._widened.cache_clear()
        torch.set_num_threads(before)
    assert seen == [1, 1]


def test_a_device_that_flushes_is_seen() -> None:
    assert arithmetic.flushes(CPU) is None
    if not torch.set_flush_denormal(True):
        return  # A processor that cannot.
    try:
        assert arithmetic.flushes(CPU) is not None
    finally:
        torch.set_flush_denormal(False)


def test_a_coarser_unit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that cuts fp32 elements off to 11 bits, and accumulates products of fp16 in fp16."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.dtype == torch.float16:
            total = torch.zeros(len(a), b.shape[1], dtype=torch.float16)
            for k in range(a.shape[1]):
                total = total + a[:, k, None] * b[None, k]
            return total
        return torch.matmul(*((x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b)))

    assert arithmetic.input_bits(CPU) == (24, False)
    assert arithmetic.kept_bits(CPU, FP16) == 24
    with monkeypatch.context() as of_convolutions:
        convolution = torch.conv2d
        of_convolutions.setattr(torch, "conv2d", lambda x, w: convolution(x.bfloat16(), w.bfloat16()).float())
        assert arithmetic.input_bits(CPU) == (8, False)
    monkeypatch.setattr(torch.Tensor, "__matmul__", product)
    assert arithmetic.input_bits(CPU) == (11, True)
    assert arithmetic.kept_bits(CPU, FP16) == 11


def test_a_wrong_function_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = DeviceProfile.FunctionError(function="cos", ulp=1)

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return torch.cos(x) * (1 + 2.0**-21) if x.dtype == torch.float32 else torch.cos(x)

    monkeypatch.setitem(
        functions.ELEMENTARY, "cos", functions.Elementary(wrong, functions.ELEMENTARY["cos"].reference, ())
    )
    worst = functions.measure("cos", CPU, claim, 1000, False, False, 1)
    assert 3 < worst.ulp < 5  # 2^-21 is 8u: 4 ULP, and what it is rounded by.


def test_a_root_that_is_missed_by_one_number_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    claim, known = DeviceProfile.FunctionError(function="sqrt", ulp=0.5), functions.ELEMENTARY["sqrt"]
    right = functions.measure("sqrt", CPU, claim, 1000, False, False, 1).ulp

    def near(x: torch.Tensor) -> torch.Tensor:
        root = torch.sqrt(x)
        if x.dtype != torch.float32:
            return root
        return torch.where(root == 3, torch.nextafter(root, torch.zeros_like(root)), root)

    monkeypatch.setitem(functions.ELEMENTARY, "sqrt", dataclasses.replace(known, compute=near))
    worst = functions.measure("sqrt", CPU, claim, 1000, False, False, 1)
    assert right < 0.5 < worst.ulp == 1
    assert "no 3.0" in worst.where


def test_roundings_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arithmetic.rounding(CPU)[0] == "NEAREST"
    to = torch.Tensor.to

    def cut_off(x: torch.Tensor, *arguments: object) -> torch.Tensor:
        if arguments == (torch.bfloat16,):
            x = (x.view(torch.int32) & ~0xFFFF).view(torch.float32)
        return to(x, *arguments)

    monkeypatch.setattr(torch.Tensor, "to", cut_off)
    assert arithmetic.rounding(CPU)[0] == "TOWARD_ZERO"
    monkeypatch.setattr(torch.Tensor, "to", lambda x, *rest: to(x + torch.rand_like(x) * 2.0**-7 - 2.0**-8, *rest))
    assert arithmetic.rounding(CPU)[0] == "STOCHASTIC"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "cuda:99"), "--device: expected one that can be used, found 'cuda:99'"),
        (("--device", "gpu"), "--device: expected one that can be used, found 'gpu'"),
        (("--base", "pytorch-gpu"), "--base: expected one of ascend-910, "),
        (("--base", "cuda-sm90+tf64"), "--base: expected options tf32, tf32-convolutions, reduced, elided or fp16-"),
        (("--base", __file__ + ".textproto"), "No such file"),
        (("-o", "/nowhere/a.textproto"), "/nowhere"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["calibrate", "--device", "cpu", "--quick", *arguments])
    assert main() == 1
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) < 4
