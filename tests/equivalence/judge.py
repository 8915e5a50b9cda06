"""Runs pairs through the daemon and through two usual rules, and holds the answers against the labels."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

import plumbline

from .forms import KINDS
from .label import BELOW, TYPE_I, TYPE_II, Label, label_of, same_bits
from .program import Text, text, torch_program
from .spec import Applied, Pair

sys.path.append(str(Path(__file__).resolve().parents[1] / "scenario"))
import rivals

RIGHT, FALSE, MISSED, UNANSWERED, OVERSTATED = "right", "false", "missed", "inconclusive", "overstated"
TIMEOUT_S = 60.0
STRONG = ("MATCH", "PROVEN")


@dataclass(frozen=True)
class Judged:
    pair: Pair
    label: Label
    bits: bool  # Whether every tap is equal bit by bit.
    verdict: str
    grade: str
    cause: str
    sentence: str
    place: str
    hazards: tuple[str, ...]
    cause_right: bool
    located: bool
    assert_close: str = ""
    fp64_rule: str = ""

    @property
    def expected(self) -> str:
        return TYPE_I if self.bits else self.label.expected

    @property
    def outcome(self) -> str:
        if self.expected == BELOW:
            return OVERSTATED if self.verdict == TYPE_I and self.grade in STRONG else RIGHT
        if self.verdict == self.expected:
            return RIGHT
        if self.verdict == TYPE_II:
            return FALSE
        return MISSED if self.verdict == TYPE_I else UNANSWERED

    @property
    def wrongly_proven(self) -> bool:
        return self.outcome in (FALSE, MISSED, OVERSTATED) and self.grade in STRONG


def judge(pair: Pair, server: str, with_rivals: bool = False, label: Label | None = None) -> Judged:
    label = label or label_of(pair)
    spec = pair.spec
    observed, expected = (_run(pair, side, torch.float32) for side in ("target", "reference"))
    says: dict[str, str] = {}
    if with_rivals:
        oracle = _run(pair, "reference", torch.float64)
        says["assert_close"] = _rule(rivals.assert_close, observed, expected)
        says["fp64_rule"] = _rule(rivals.fp64_rule, observed, expected, oracle)
    bits = same_bits(observed, expected)
    programs = [torch_program(spec, getattr(pair, s), torch.float32, f"{s}.py") for s in ("target", "reference")]
    torch.manual_seed(spec.seed)
    try:
        v = plumbline.compare(*programs, server=server, timeout=TIMEOUT_S)
    except plumbline.PlumblineError as error:
        v = None
        answer = ("ERROR", "", "", str(error), "", ())
    if v is not None:
        place = v.suspect
        where = "" if place is None else f"{place.source} {place.op} {place.module}"
        answer = (v.verdict, v.grade, v.cause, v.sentence, where, tuple(h.kind for h in v.hazards))
    return Judged(
        pair,
        label,
        bits,
        *answer,
        answer[2] in _causes(pair, label, bits),
        _located(pair, answer[4], answer[3]),
        **says,
    )


def _run(pair: Pair, side: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    torch.manual_seed(pair.spec.seed)
    taps = torch_program(pair.spec, getattr(pair, side), dtype, f"{side}.py")()
    return {name: tap.detach().clone() for name, tap in taps.items()}


def _rule(rule: object, observed: dict, expected: dict, *oracle: dict) -> str:
    """A tap that is missing is a difference."""
    if observed.keys() != expected.keys():
        return TYPE_II
    return rule(observed, expected, *oracle)  # type: ignore[operator]


def _causes(pair: Pair, label: Label, bits: bool) -> tuple[str, ...]:
    if label.expected == TYPE_II and not bits:
        if label.structure:
            return ("STRUCTURE", "MATHEMATICS")  # The weights that were not updated differ, too.
        return tuple(c for a in pair.mutations for c in a.registered.causes)
    policy = ("PRECISION_POLICY",) if pair.spec.autocast else ()  # Other operations are rounded to bf16.
    return ("ROUNDING", *policy, *(c for a in pair.rewrites for c in a.registered.causes))


def _located(pair: Pair, where: str, sentence: str) -> bool:
    """Whether the suspect is a line that a mutated block wrote, on either side, or names what was given otherwise."""
    source = where.partition(" ")[0]
    for applied in pair.mutations:
        kind = KINDS[pair.spec.blocks[applied.block].kind]
        names = "|".join(f"{name}{applied.block}" for name in (*kind.params, *kind.data, *kind.tables))
        given = {"LEAF_MISMATCH", "STRUCTURE"} & set(applied.registered.causes)
        if given and names and re.search(rf"\b({names})\b", where + sentence):
            return True
    file, _, line = source.partition(":")
    if file not in ("target.py", "reference.py") or not line.isdigit():
        return False
    side = file.removesuffix(".py")
    written: Text = text(pair.spec, getattr(pair, side))
    blocks = {a.block + next_ for a in pair.mutations for next_ in ((0, 1) if a.registered.after else (0,))}
    return any(int(line) in written.lines_of[block] for block in blocks)


def describe(judged: Judged) -> str:
    """A failing pair, as text: what differs, what was expected, what was said."""
    pair = judged.pair
    edits = "; ".join(f"{side}: {_edits(getattr(pair, side))}" for side in ("target", "reference"))
    lines = [
        f"{judged.outcome}: expected {judged.expected}{' (equal bits)' if judged.bits else ''},"
        f" gap {judged.label.gap:.3g}, freedom {judged.label.freedom:.3g};"
        f" got {judged.verdict} {judged.grade} {judged.cause}",
        f"sentence: {judged.sentence}",
        f"place: {judged.place}   hazards: {', '.join(judged.hazards)}",
        edits,
    ]
    target, reference = text(pair.spec, pair.target).source, text(pair.spec, pair.reference).source
    return "\n".join([*lines, "--- reference", reference, "--- target", target])


def _edits(edits: tuple[Applied, ...]) -> str:
    return ", ".join(f"{a.edit} at {a.block}{f' by {a.delta!r}' if a.delta else ''}" for a in edits) or "as written"
