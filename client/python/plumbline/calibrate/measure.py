"""Holds a profile's claims against the device, and widens those that do not hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ..v1.profile_pb2 import DeviceProfile
from . import arithmetic, functions
from .formats import FP32
from .profiles import with_headroom

REFERENCE_ULP = 2.0**-9  # How far our own references may be off.
RANGES = {"sigmoid": (0.0, 1.0)}  # What mathematics keeps; of the others [-1, 1].


@dataclass
class Finding:
    claim: str
    claimed: Any  # None: the profile says nothing.
    measured: Any
    where: str
    samples: int = 0
    contradicted: bool = False
    looser: bool = False

    def line(self) -> str:
        return f"measured {short(self.measured)} over {self.samples} samples, the largest at {self.where}"


def short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass
class Calibration:
    profile: DeviceProfile  # The base, widened to what was measured.
    findings: list[Finding] = field(default_factory=list)
    narrow: list[str] = field(default_factory=list)  # Kernels that round to fp16 or bf16 more than once.
    notes: list[str] = field(default_factory=list)

    @property
    def contradictions(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.contradicted]

    def figures(self) -> dict[str, Any]:
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "contradictions": [finding.claim for finding in self.contradictions],
            "looser": [finding.claim for finding in self.findings if finding.looser],
            "narrow": self.narrow,
            "notes": self.notes,
        }


class Calibrator:
    def __init__(self, base: DeviceProfile, device: torch.device, quick: bool, seed: int) -> None:
        self.base, self.device, self.seed = base, device, seed
        self.count = 2**14 if quick else 2**22
        self.lengths = (64, 1024) if quick else (16, 64, 1024, 16384)
        self.result = Calibration(DeviceProfile())
        self.result.profile.CopyFrom(base)
        self.flushing = False
        self.loose = base.rounding not in (DeviceProfile.NEAREST, DeviceProfile.ROUNDING_UNSPECIFIED)

    def run(self) -> Calibration:
        self._modes()
        for name, function in functions.ELEMENTARY.items():
            if self.device.type == "cpu" or not function.on_cpu_alone:
                self._function(name)
        self._sums()
        for kind in arithmetic.PRODUCTS:
            self._products(kind)
        self._inputs()
        if self.device.type == "cuda":
            self.result.notes += list(_cuda_flags(self.device))
        return self.result

    def _take(self, finding: Finding) -> Finding:
        self.result.findings.append(finding)
        return finding

    def _modes(self) -> None:
        profile = self.result.profile
        seen = arithmetic.flushes(self.device)
        self.flushing = seen is not None or self.base.flush_subnormals
        claimed = self.base.flush_subnormals if self.base.HasField("flush_subnormals") else None
        wrong = seen is not None and claimed is False
        self._take(Finding("flush_subnormals", claimed, seen is not None, seen or "no operation", 5, wrong))
        if wrong or claimed is None:
            profile.flush_subnormals = seen is not None
        mode, where = arithmetic.rounding(self.device)
        order = ["NEAREST", "TOWARD_ZERO", "STOCHASTIC"]  # Each allows what stands before it.
        stated = DeviceProfile.Rounding.Name(self.base.rounding) if self.base.rounding else None
        wrong = stated is not None and order.index(mode) > order.index(stated)
        self._take(Finding("rounding", stated, mode, where, 12, wrong))
        if wrong or stated is None:
            profile.rounding = DeviceProfile.Rounding.Value(mode)
        self.loose = profile.rounding != DeviceProfile.NEAREST
        lost = arithmetic.one_pass(self.device)
        stated = DeviceProfile.Variance.Name(self.base.variance) if self.base.variance else None
        wrong = lost is not None and stated not in (None, "ONE_PASS")
        self._take(Finding("variance", stated, "ONE_PASS" if lost else "STABLE", lost or "no kernel", 3, wrong))
        if wrong or stated is None:
            profile.variance = DeviceProfile.ONE_PASS if lost else DeviceProfile.STABLE

    def _function(self, name: str) -> None:
        stated = next((item for item in self.base.functions if item.function == name), None)
        claim = stated if stated is not None else DeviceProfile.FunctionError(function=name)
        worst = functions.measure(name, self.device, claim, self.count, self.flushing, self.loose, self.seed)
        claimed = claim.ulp if stated is not None else None
        contradicted = claimed is not None and worst.ulp > claimed + REFERENCE_ULP
        looser = claimed is not None and claimed > with_headroom(worst.ulp)
        self._take(Finding(f"functions.{name}", claimed, worst.ulp, worst.where, worst.samples, contradicted, looser))
        self.result.narrow += [
            f"{name} rounds more than once: {ulp:.3g} ULP of {where}" for ulp, where in worst.narrow.values()
        ]
        if stated is None:
            target = self.result.profile.functions.add(function=name)
        else:
            target = next(item for item in self.result.profile.functions if item.function == name)
        if math.isinf(worst.ulp):  # No figure states it; what is left out takes its widest legal value.
            self.result.profile.functions.remove(target)
        elif contradicted or stated is None:
            target.ulp = with_headroom(worst.ulp if worst.ulp > REFERENCE_ULP else 0)
        if functions.ELEMENTARY[name].bounded:
            self._range(name, stated, target, worst)

    def _range(self, name: str, stated: Any, target: Any, worst: functions.Worst) -> None:
        low, high = RANGES.get(name, (-1.0, 1.0))
        for end, measured, at, beyond in (
            ("low", worst.low, worst.low_at, lambda claimed: worst.low < claimed),
            ("high", worst.high, worst.high_at, lambda claimed: worst.high > claimed),
        ):
            claimed = getattr(stated, end) if stated is not None and stated.HasField(end) else None
            wrong = claimed is not None and beyond(claimed)
            self._take(Finding(f"functions.{name}.{end}", claimed, measured, at, worst.samples, wrong))
            inside = not beyond({"low": low, "high": high}[end])
            if wrong:
                target.ClearField("low"), target.ClearField("high")  # May be anything.
            elif stated is None and inside:
                setattr(target, end, {"low": low, "high": high}[end])

    def _sums(self) -> None:
        stated = self.base.sum if self.base.HasField("sum") else None
        claim = stated if stated is not None else DeviceProfile.Accumulation(k=1)
        worst = arithmetic.sums(self.device, claim, self.lengths, self.loose, self.seed)
        self._factor("sum", stated, worst, self.result.profile.sum, claim.k)

    def _products(self, kind: str) -> None:
        stated = next((item for item in self.base.products if item.inputs == kind), None)
        claim = stated if stated is not None else DeviceProfile.Product(inputs=kind, k=16, factor=4)
        fmt = arithmetic.PRODUCTS[kind]
        if stated is None:
            target = self.result.profile.products.add(inputs=kind, k=16, factor=4)
        else:
            target = next(item for item in self.result.profile.products if item.inputs == kind)
        bits = arithmetic.kept_bits(self.device, fmt)
        whole = 53 if kind == "fp64" else 24
        claimed_bits = claim.accumulator_bits if claim.HasField("accumulator_bits") else whole
        wrong = bits < claimed_bits
        where = f"2^12 + 2^{12 - bits} - 2^12" if bits < whole else "no place"
        self._take(Finding(f"products.{kind}.accumulator_bits", claimed_bits, bits, where, 256, wrong))
        if wrong:
            target.accumulator_bits = bits
        lost = arithmetic.product_flushes(self.device, fmt)
        flushes = claim.flushes or self.base.flush_subnormals
        wrong = lost is not None and not flushes and stated is not None
        self._take(Finding(f"products.{kind}.flushes", flushes, lost is not None, lost or "no product", 2, wrong))
        if wrong or stated is None:
            target.flushes = lost is not None
        parts = self.base.split_k.parts
        worst = arithmetic.products(self.device, fmt, target, parts, self.lengths, self.loose, self.flushing, self.seed)
        self._factor(f"products.{kind}", stated, worst, target, target.k)

    def _factor(self, claim: str, stated: Any, worst: arithmetic.Ratio, target: Any, k: int) -> None:
        claimed = stated.factor if stated is not None else None
        wrong = claimed is not None and worst.factor > claimed * (1 + 2.0**-20)
        looser = claimed is not None and claimed > 2 * worst.factor
        self._take(Finding(claim, claimed, worst.factor, f"{worst.where}, k = {k}", worst.samples, wrong, looser))
        if wrong or claimed is None:
            target.k, target.factor = k, max(1.0, with_headroom(worst.factor))

    def _inputs(self) -> None:
        bits, cut = arithmetic.input_bits(self.device)
        allowed = self.base.tf32_allowed if self.base.HasField("tf32_allowed") else None
        where = f"1 + 2^-{bits}, {'cut off' if cut else 'rounded'}" if bits < FP32.precision else "no element"
        wrong = bits < FP32.precision and allowed is False
        self._take(Finding("tf32_allowed", allowed, bits < FP32.precision, where, 23, wrong))
        if wrong or allowed is None:
            self.result.profile.tf32_allowed = bits < FP32.precision


def _cuda_flags(device: torch.device) -> Iterator[str]:
    """What the framework's flags change, each alone."""
    matmul = torch.backends.cuda.matmul

    def under(name: str, value: Any, probe: Callable[[], str]) -> str:
        before = getattr(matmul, name)
        try:
            setattr(matmul, name, value)
            return f"{name} = {value}: {probe()}"
        finally:
            setattr(matmul, name, before)

    def inputs() -> str:
        bits, cut = arithmetic.input_bits(device)
        return f"products keep {bits} bits of fp32 elements{', cut off' if cut else ''}"

    def accumulator() -> str:
        return f"products of fp16 keep {arithmetic.kept_bits(device, arithmetic.FP16)} bits"

    if hasattr(matmul, "fp32_precision"):
        yield from (under("fp32_precision", value, inputs) for value in ("ieee", "tf32"))
    else:
        yield from (under("allow_tf32", value, inputs) for value in (False, True))
    if hasattr(matmul, "allow_fp16_accumulation"):
        yield from (under("allow_fp16_accumulation", value, accumulator) for value in (False, True))
    yield from (under("allow_fp16_reduced_precision_reduction", value, accumulator) for value in (False, True))
