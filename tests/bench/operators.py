"""Judges PyTorch's own operators against themselves, against PyTorch's references for them, and against wrong ones.

Of each operator some sample inputs are drawn, in fp32 and bf16, and run forward and backward. Labels are by
construction, and each is checked in fp64: a reference that computes something else there is no pair, and neither is a
change that changes nothing.
"""

from __future__ import annotations

import math
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from operators_open import LEFT_OVER, OPEN
from operators_samples import DTYPES, Program, Sample, operators, reference_of, samples
from private_daemon import running
from torch.testing._internal.opinfo.core import OpInfo

import plumbline

SAMPLES = 3
TIMEOUT_S = 60.0
# What a wrong operator is wrong by: some roundings.
SCALE = {torch.float32: 1 + 1e-3, torch.bfloat16: 1 + 1 / 16}
# What fp64 leaves of a tap that is 0 by mathematics.
ZERO = 1e-12
# Closer in fp64, programs compute the same.
ONE = 1e-10
# References are what they are said to be in fp64. In narrow formats some are not: by a bug, where they are that much
# farther from fp64 than the operator, or by an eps, the element type's in the operator and fp32's in its reference.
FARTHER = 16
OTHER_IN_NARROW = {"special.i0e", "special.i1", "special.i1e"}
# A seed for the test run, and operators of every family, modelled and opaque, among them what was once judged wrongly.
SMALL_SEED = 16
SMALL = {
    *("add", "addcmul", "addr", "argmax", "bitwise_and", "bitwise_xor", "bmm", "cat", "cdist", "clamp", "cumsum"),
    *("div", "floor_divide", "full_like", "gather", "index_add", "index_copy", "index_put", "kthvalue", "lerp"),
    *("linalg.cross", "logaddexp2", "logit", "logsumexp", "masked_fill", "max.reduction_with_dim", "mul"),
    *("narrow_copy", "pow", "prod", "nn.functional.batch_norm", "nn.functional.conv2d"),
    *("nn.functional.cross_entropy", "nn.functional.gelu", "nn.functional.group_norm", "nn.functional.linear"),
    *("nn.functional.max_pool2d", "nn.functional.softplus", "roll", "scatter_add", "softmax", "sort", "special.entr"),
    *("special.i0e", "take", "topk", "var", "where"),
}
SAME, WRONG = "TYPE_I", "TYPE_II"
NO_REASON = "NO REASON IS KNOWN"


@dataclass(frozen=True)
class Pair:
    """Two programs and what is to be said of them."""

    sample: Sample
    kind: str  # "itself", "reference", or a control's name.
    label: str
    target: Program
    reference: Program
    small: bool = False  # A change that rounding could hide: nothing need be said.


@dataclass(frozen=True)
class Judged:
    pair: Pair
    verdict: str  # The outcome, or "ERROR".
    sentence: str
    opaque: tuple[str, ...]  # The operations that were.
    equal: bool  # Every tap, bit by bit.

    @property
    def fault(self) -> str:
        """What is wrong with the verdict; empty: nothing."""
        if self.verdict not in (SAME, WRONG):
            return "" if self.pair.small else "inconclusive"
        if self.verdict == WRONG:
            return "equal, accused" if self.equal else "false TYPE_II" if self.pair.label == SAME else ""
        return "control missed" if self.pair.label == WRONG and not self.equal else ""

    @property
    def kind(self) -> str:
        return self.pair.sample.kind


@dataclass
class Figures:
    operators: set[str] = field(default_factory=set)
    samples: int = 0
    opaque_samples: int = 0
    inconclusive_samples: int = 0
    opaque: dict[str, Counter[str]] = field(default_factory=dict)  # By operator: the operations that were opaque.
    faults: list[Judged] = field(default_factory=list)
    pairs: Counter[str] = field(default_factory=Counter)  # By "fp32 itself".
    skipped: Counter[str] = field(default_factory=Counter)


def _difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """The largest over taps, relative to the tap's largest element; infinite where they are not alike at all."""
    if a.keys() != b.keys():
        return float("inf")
    worst = 0.0
    for name, x in a.items():
        y = b[name]
        if x.shape != y.shape:
            return float("inf")
        x, y = x.double(), y.double()
        finite = torch.isfinite(x) & torch.isfinite(y)
        patterns = (torch.where(finite, 0.0, each).nan_to_num(nan=7.0) for each in (x, y))
        if not torch.equal(*patterns):
            return float("inf")
        x, y = x[finite], y[finite]
        if x.numel() == 0 or torch.equal(x, y):
            continue
        largest = float(torch.maximum(x.abs(), y.abs()).max())
        worst = max(worst, float((x - y).abs().max()) / largest if largest > ZERO else 0.0)
    return worst


def _alike(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return {name: x.shape for name, x in a.items()} == {name: x.shape for name, x in b.items()}


def _bitwise_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Every NaN is one."""

    def bits(x: torch.Tensor) -> torch.Tensor:
        if x.dtype.is_floating_point:
            x = torch.where(torch.isnan(x), torch.nan, x)
        return x.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)

    return a.keys() == b.keys() and all(
        x.shape == b[name].shape and x.dtype == b[name].dtype and torch.equal(bits(x), bits(b[name]))
        for name, x in a.items()
    )


def _scaled(by: float, taps: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The first output with numbers in it, larger."""
    for name, x in taps.items():
        if x.dtype.is_floating_point and x.numel():
            return taps | {name: x * by}
    return taps


def _dropped(taps: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The first output without its last element: 0 in its place, or another integer."""
    for name, x in taps.items():
        if not x.numel():
            continue
        flat = x.reshape(-1)
        last = flat[-1:]
        if x.dtype.is_floating_point:
            other = torch.zeros_like(last)
        else:
            other = ~last if x.dtype == torch.bool else last + 1
        return taps | {name: torch.cat([flat[:-1], other]).reshape(x.shape)}
    return taps


def _other_argument(by: float, args: list, kwargs: dict) -> None:
    """The first number among the arguments, larger."""
    for i, x in enumerate(args):
        if isinstance(x, float):
            args[i] = x * by
            return
    for name, x in kwargs.items():
        if isinstance(x, float):
            kwargs[name] = x * by
            return


CONTROLS: dict[str, Callable[[float], dict[str, Callable]]] = {
    "scaled": lambda by: {"mutation": partial(_scaled, by)},
    "dropped": lambda by: {"mutation": _dropped},
    "argument": lambda by: {"change_arguments": partial(_other_argument, by)},
}


def _other_than(sample: Sample, reference: Callable, exact: dict[str, torch.Tensor]) -> str:
    """Why the reference is no other writing of the operator; empty: it is one."""
    if _difference(exact, sample.program(reference, dtype=torch.float64)()) > ONE:
        return "the reference computes something else in fp64"
    if sample.kind == "bf16" and sample.name in OTHER_IN_NARROW:
        return "the reference has another eps in bf16"
    own, other = (_difference(exact, program()) for program in (sample.program(), sample.program(reference)))
    if other > FARTHER * own + 4 * torch.finfo(sample.dtype).eps:
        return f"the reference computes something else in {sample.kind}"
    return ""


def _pairs(sample: Sample, figures: Figures) -> Iterator[Pair]:
    yield Pair(sample, "itself", SAME, sample.program(), sample.program())
    exact = sample.program(dtype=torch.float64)()

    reference = reference_of(sample.operator)
    if reference is not None:
        try:
            other = _other_than(sample, reference, exact)
            # It may refuse what the operator takes, or take no derivative.
            programs = sample.program(), sample.program(reference)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError):
            other = "the reference does not run"
        if other:
            figures.skipped[other] += 1
        else:
            yield Pair(sample, "reference", SAME, *programs)

    draw = random.Random(f"{sample.name} {sample.number}")
    for kind in draw.sample(sorted(CONTROLS), len(CONTROLS)):
        wrong = CONTROLS[kind](SCALE[sample.dtype])
        difference = _difference(exact, sample.program(dtype=torch.float64, **wrong)())
        if math.isinf(difference) and not _alike(sample.program(**wrong)(), sample.program()()):
            continue  # Programs of other shapes are no pair: that is an error.
        if difference > ONE:  # The order of a norm over one element changes nothing but its rounding.
            small = difference < 4 * torch.finfo(sample.dtype).eps
            yield Pair(sample, kind, WRONG, sample.program(**wrong), sample.program(), small)
            return
    figures.skipped["no control changes it"] += 1


def judge(pair: Pair, server: str) -> Judged:
    taps: dict[str, dict[str, torch.Tensor]] = {}

    def kept(side: str, program: Program) -> Program:
        def run() -> dict[str, torch.Tensor]:
            taps[side] = program()
            return taps[side]

        return run

    try:
        verdict = plumbline.compare(
            kept("target", pair.target), kept("reference", pair.reference), server, timeout=TIMEOUT_S
        )
    except plumbline.PlumblineError as error:
        return Judged(pair, "ERROR", str(error), (), False)
    equal = _bitwise_equal(taps["target"], taps["reference"])
    sentence = f"{verdict.cause}: {verdict.sentence}"
    opaque = tuple(verdict.coverage.opaque_names) or ("unnamed",) * (verdict.coverage.opaque > 0)
    return Judged(pair, verdict.verdict, sentence, opaque, equal)


def _judge_operator(operator: OpInfo, kind: str, count: int, seed: int, server: str, figures: Figures) -> None:
    try:
        drawn = samples(operator, kind, count, seed)
    except RuntimeError as error:
        figures.skipped[f"no sample can be made: {type(error).__name__}"] += 1
        return
    for sample in drawn:
        try:
            if not sample.program()():
                continue
            pairs = list(_pairs(sample, figures))
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError) as error:
            figures.skipped[f"the operator itself raises {type(error).__name__}"] += 1
            continue
        judged = [judge(pair, server) for pair in pairs]
        figures.pairs.update(f"{kind} {pair.kind}" for pair in pairs)
        figures.faults += [each for each in judged if each.fault]
        opaque = {name for each in judged for name in each.opaque}
        if opaque:
            figures.opaque.setdefault(sample.name, Counter()).update(opaque)
        figures.operators.add(sample.name)
        figures.samples += 1
        figures.opaque_samples += bool(opaque)
        figures.inconclusive_samples += any(each.fault == "inconclusive" for each in judged)


def _table(figures: Figures) -> str:
    lines = ["what is wrong, by operator"]
    rows: dict[tuple[str, str, str, str], list[Judged]] = {}
    for judged in figures.faults:
        row = (judged.pair.sample.name, judged.kind, judged.pair.kind, judged.fault)
        rows.setdefault(row, []).append(judged)
    for (name, kind, pair, fault), group in sorted(rows.items()):
        numbers = ",".join(str(judged.pair.sample.number) for judged in group)
        lines.append(f"  {name:44} {kind:5} {pair:10} {fault:15} {numbers:10} {group[0].sentence[:150]}")
    lines.append(LEFT_OVER)
    for name, operations in sorted(figures.opaque.items()):
        found = ", ".join(f"{operation} ({count})" for operation, count in sorted(operations.items()))
        lines.append(f"  {name:44} {found}: {OPEN.get(name, NO_REASON)}")
    for kind in DTYPES:
        pairs = sum(count for name, count in figures.pairs.items() if name.startswith(kind))
        open_pairs = [judged for judged in figures.faults if judged.fault == "inconclusive" and judged.kind == kind]
        opaque = sum(bool(judged.opaque) for judged in open_pairs)
        share = 100 * len(open_pairs) / max(1, pairs)
        lines.append(f"{kind}: {pairs} pairs, {len(open_pairs)} inconclusive ({share:.2f} %), {opaque} of them opaque")
    lines += [f"{count} pairs of {name}" for name, count in sorted(figures.pairs.items())]
    lines += [f"left out {count} times: {why}" for why, count in sorted(figures.skipped.items())]
    return "\n".join(lines)


def measure(small: bool, seed: int | None, names: set[str] | None = None) -> tuple[str, dict]:
    if seed is None:
        seed = SMALL_SEED if small else random.SystemRandom().randrange(2**31)
    torch.set_num_threads(1)
    figures = Figures()
    with running() as daemon, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for operator in operators(names or (SMALL if small else None)):
            for kind in DTYPES:
                _judge_operator(operator, kind, 1 if small else SAMPLES, seed, daemon.address, figures)
    faults = Counter(judged.fault for judged in figures.faults)
    open_pairs = (each for each in figures.faults if each.fault == "inconclusive")
    unnamed = (figures.opaque.keys() | {each.pair.sample.name for each in open_pairs}) - OPEN.keys()

    def share(count: int) -> float:
        return round(100 * count / max(1, figures.samples), 2)

    return f"{_table(figures)}\n\nsamples drawn from --seed {seed}", {
        "operators": len(figures.operators),
        "samples": figures.samples,
        "opaque_samples_pct": share(figures.opaque_samples),
        "inconclusive_pct": share(figures.inconclusive_samples),
        "false_type_ii": faults["false TYPE_II"] + faults["equal, accused"],
        "controls_missed": faults["control missed"],
        "inconclusive": faults["inconclusive"],
        "left_without_reason": len(unnamed),
    }
