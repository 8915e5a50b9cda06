"""Judges formula mutants against the formulas they were made from, live through client and daemon."""

from collections.abc import Iterable
from dataclasses import dataclass

import formulas
from mutants import Mutant

import plumbline


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    verdict: "plumbline.Verdict"

    @property
    def flagged(self) -> bool:
        return self.verdict.verdict == "TYPE_II"

    @property
    def located(self) -> bool:
        suspect = self.verdict.suspect
        return self.flagged and suspect is not None and suspect.source in self.mutant.fault()


def judge(mutant: Mutant, server: str) -> Result:
    tokens = formulas.batch()
    target, reference = mutant.target(), mutant.reference()
    return Result(mutant, plumbline.compare(lambda: target.step(tokens), lambda: reference.step(tokens), server=server))


def table(results: Iterable[Result]) -> str:
    lines = [f"{'formula mutant':72} {'verdict':12} {'gap':>8}  suspect"]
    for r in results:
        mark = "" if r.located else f"   NOT LOCATED: {', '.join(sorted(r.mutant.fault()))}"
        lines.append(f"{r.mutant.what:72} {r.verdict.verdict:12} {r.verdict.deviation:8.1e}  {r.verdict.suspect}{mark}")
    return "\n".join(lines)
