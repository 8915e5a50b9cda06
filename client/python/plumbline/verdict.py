"""A verdict as Python sees it, and how it is printed."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Any

from .names import short_name
from .v1 import verdict_pb2

# Fields of a verdict that say which step it is of, and when and how it was audited.
_OF_THE_STEP = (
    *("id", "project", "job", "run", "rank", "step", "time", "audit_seconds", "backend", "trace"),
    *("digest", "rank_digests", "trace_id"),
)


@dataclass(frozen=True)
class Place:
    """Where something happened."""

    op: str
    source: str
    module: str
    format: str

    def __str__(self) -> str:
        text = f"{self.source or 'unknown line'}  {self.op}"
        if self.module:
            text += f" in {self.module}"
        return f"{text} ({self.format})" if self.format else text


class TapVerdict:
    """One tap, judged. Fields as in TapVerdict of verdict.proto; `outcome` and `grade` are their names."""

    def __init__(self, message: verdict_pb2.TapVerdict) -> None:
        self.message = message
        self.outcome: str = short_name(verdict_pb2.Outcome, message.outcome)
        self.grade: str = _grade(message.grade)

    @property
    def surprise(self) -> float:
        return _surprise(self.message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.message, name)

    def __repr__(self) -> str:
        return f"<tap {self.message.name}: {self.outcome}, surprise {_number(self.surprise)}>"


class Verdict:
    """The judgement of one step. Printed: one screen. `explain()` tells the rest."""

    def __init__(self, message: verdict_pb2.Verdict) -> None:
        self.message = message
        self.verdict: str = short_name(verdict_pb2.Outcome, message.verdict)
        self.grade: str = _grade(message.grade)
        self.cause: str = _cause(message.cause)
        self.suspect: Place | None = _place(message.suspect) if message.HasField("suspect") else None
        self.advice: list[str] = list(message.advice)
        self.taps: dict[str, TapVerdict] = {tap.name: TapVerdict(tap) for tap in message.taps}

    @property
    def surprise(self) -> float:
        """Minus log10 of the probability that legal rounding deviates as much somewhere; NaN: not asked."""
        return _surprise(self.message)

    @property
    def coverage(self) -> verdict_pb2.Coverage:
        return self.message.coverage

    def __getattr__(self, name: str) -> Any:
        # Everything else as it came: sentence, deviation, envelope, margin, math_resolution, exec_resolution,
        # explained, deciding_tap, suspect_detail, step, run, job, notes, hazards, contributors, ...
        if name == "message":
            raise AttributeError(name)
        return getattr(self.message, name)

    def __str__(self) -> str:
        lines = [f"{self.verdict} ({self.grade})  cause: {self.cause.replace('_', ' ').lower()}"]
        if not math.isnan(self.surprise):
            lines[0] += f"  surprise: {self.surprise:.2g}"
        if self.suspect is not None:
            lines.append(f"suspect: {self.suspect}")
        lines.append(self.message.sentence)
        return "\n".join(lines)

    def __eq__(self, other: object) -> bool:
        """Whether they say the same, whenever and of whichever step; NaN is what was not asked."""
        return self._said() == other._said() if isinstance(other, Verdict) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._said())

    def _said(self) -> bytes:
        said = verdict_pb2.Verdict()
        said.CopyFrom(self.message)
        for field in _OF_THE_STEP:
            said.ClearField(field)
        return said.SerializeToString(deterministic=True)

    def one_line(self) -> str:
        """As it is printed, on one line, as a log has it."""
        return "; ".join(str(self).splitlines())

    def _repr_html_(self) -> str:
        """As notebooks show it: what is printed, and the rest to be opened."""
        colour = {"TYPE_I": "#1a7f37", "TYPE_II": "#cf222e"}.get(self.verdict, "#9a6700")
        first, *others = (html.escape(line) for line in str(self).splitlines())
        return (
            f'<div><strong style="color:{colour}">{first}</strong><br>{"<br>".join(others)}'
            f"<details><summary>explain()</summary><pre>{html.escape(self.explain())}</pre></details></div>"
        )

    def __repr__(self) -> str:
        return f"<Verdict {self.message.id or 'step ' + str(self.message.step)}: {self.verdict} {self.grade}>"

    def explain(self, all: bool = False) -> str:
        """What the verdict says, the taps that did not pass first and alone; `all`: those that passed too."""
        m = self.message
        lines = [str(self), ""]
        if m.suspect_detail:
            lines.append(f"why there        {m.suspect_detail}")
        lines += [
            f"surprise         {_number(self.surprise)}",
            f"deciding tap     {m.deciding_tap or 'none'}",
            *_asked("deviation", {"": m.deviation, "envelope ": m.envelope, "margin ": m.margin}),
            *_asked("resolution", {"mathematics ": m.math_resolution, "execution ": m.exec_resolution}),
            *_asked("explained", {"": m.explained}),
            f"reference        {m.reference or 'exact'}   profile {m.profile}   backend {m.backend}",
            f"coverage         {m.coverage.audited} of {m.coverage.operations} operations audited,"
            f" {m.coverage.opaque} opaque{_share(m.coverage)} {', '.join(m.coverage.opaque_names)}".rstrip(),
        ]
        if m.coverage.partial:
            lines.append(
                f"partial          {m.coverage.modules_audited} of {m.coverage.modules} modules,"
                f" {m.coverage.parameters_audited} of {m.coverage.parameters} parameters"
            )
        if m.ranks_of_run:
            lines.append(f"ranks            {', '.join(map(str, m.ranks_here))} of {m.ranks_of_run}, judged together")
        elif m.ranks > 1:
            lines.append(f"ranks            {m.ranks}, judged together")
        if m.coverage.decisions:
            lines.append(f"decisions        {m.coverage.decisions}, of which {m.coverage.unstable} unstable")
        if m.alignment.operations:
            lines += ["", *_along(m.alignment)]
        if m.contributors:
            lines += ["", "contributors"]
            lines += [f"  {c.share:6.1%}  {_place(c.place)}  x{c.count}" for c in m.contributors]
        taps = [tap for tap in m.taps if all or tap.outcome != verdict_pb2.OUTCOME_TYPE_I]
        if m.taps:
            lines += ["", "taps"]
            width = min(48, max((len(tap.name) for tap in taps), default=0))
            lines += [f"  {tap.name:{width}}  {_tap_line(tap)}" for tap in taps]
            if len(taps) < len(m.taps):
                lines.append(f"  {len(m.taps) - len(taps)} passed (explain(all=True))")
        if m.hazards:
            lines += ["", "hazards"]
            for h in m.hazards:
                lines += [f"  {h.kind}  {h.share:.2%}  {_place(h.place)}", f"    {h.sentence}", f"    {h.remedy}"]
        for title, texts in (("advice", m.advice), ("notes", m.notes)):
            if texts:
                lines += ["", title, *(f"  {text}" for text in texts)]
        return "\n".join(lines)


def _along(alignment: verdict_pb2.Alignment) -> list[str]:
    """Where the two programs of a pair part, and what each has there; what lies around it is in the page."""
    counts = f"{alignment.agree} agree, {alignment.differ} differ"
    if not alignment.HasField("parts"):
        return [f"along the graph  no operation is where the programs part: {counts}"]
    at, here = alignment.before + alignment.parts, alignment.operations[alignment.parts]
    lines = [f"along the graph  the programs part at operation {at + 1}: {counts}"]
    for side in ("target", "reference"):
        lines.append(f"  {side:9}  {_place(getattr(here, side)) if here.HasField(side) else 'nothing in this place'}")
    if not math.isnan(here.deviation):
        lines.append(f"  deviation  {here.deviation:.6g}, where rounding explains {here.allowed:.6g} (relative)")
    return lines


def _tap_line(tap: verdict_pb2.TapVerdict) -> str:
    outcome = short_name(verdict_pb2.Outcome, tap.outcome)
    text = f"{outcome} {_grade(tap.grade)}  surprise {_number(_surprise(tap))}"
    text += f"  margin {_number(tap.margin)}"
    if math.isfinite(tap.low) and math.isfinite(tap.high):
        text += f"  {_number(tap.observed)} in [{_number(tap.low)}, {_number(tap.high)}]"
    return text


def _asked(title: str, numbers: dict[str, float]) -> list[str]:
    """One line of the relative numbers that were asked for, if any."""
    texts = [f"{name}{_number(value)}" for name, value in numbers.items() if not math.isnan(value)]
    return [f"{title:16} {'   '.join(texts)}   (relative)"] if texts else []


def _grade(value: int) -> str:
    return short_name(verdict_pb2.Grade, value) if value else ""


def _cause(value: int) -> str:
    return short_name(verdict_pb2.Cause, value) if value else ""


def _place(message: verdict_pb2.Place) -> Place:
    return Place(message.op, message.source, message.module, message.format)


def _surprise(message: verdict_pb2.Verdict | verdict_pb2.TapVerdict) -> float:
    return message.surprise if message.HasField("surprise") else math.nan


def _number(value: float) -> str:
    return "not asked" if math.isnan(value) else f"{value:.6g}"


def _share(coverage: verdict_pb2.Coverage) -> str:
    """What the opaque operations were of the work."""
    if not coverage.opaque or not coverage.work > 0:
        return ""
    return f" ({1 - coverage.work_audited / coverage.work:.3g} of the work)"
