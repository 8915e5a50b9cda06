"""Formula mutants: subclasses of a Decoder in which one formula is wrong.

To add one, override the method that holds the formula (below a line `@mutant("what is wrong")`) and change as little
as possible. The fault is where the texts of the two methods differ: a verdict has located it when its suspect is one of
these lines, in the mutant's method or, for something left out, in the reference's. Where no operation of these lines is
wrong in itself (a view, an argument, a condition the other way round), it shows in the first operation that uses their
result; where a call is left out with its parameter, in the first operation within it. Name that operation's method in
`first_use`.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import formulas
from formulas import Decoder

import plumbline


@dataclass(frozen=True)
class Mutant:
    what: str
    target: type[Decoder]
    first_use: tuple[str, ...]

    @property
    def reference(self) -> type[Decoder]:
        return self.target.__bases__[0]

    def fault(self) -> set[str]:
        """Lines at fault, "file.py:line": where the mutated methods and the reference's differ, in either."""
        lines: set[str] = set()
        for name, method in vars(self.target).items():
            if inspect.isfunction(method):
                original = getattr(self.reference, name)
                lines |= _differing(method, original) | _differing(original, method)
        for name in self.first_use:
            lines |= _differing(getattr(self.target, name), None)
        return lines


def _differing(method: Callable, other: Callable | None) -> set[str]:
    """Lines of a method that the other one lacks, and what follows a line that it lacks itself."""
    text, first = inspect.getsourcelines(method)
    file = inspect.getsourcefile(method).rpartition("/")[2]
    before = inspect.getsourcelines(other)[0] if other else []
    lines: set[int] = set()
    for kind, _, _, begin, end in difflib.SequenceMatcher(None, before, text, autojunk=False).get_opcodes():
        if kind == "delete":
            lines.add(begin)
        elif kind != "equal":
            lines |= set(range(begin, end))
    return {f"{file}:{first + line}" for line in lines}


MUTANTS: list[Mutant] = []


def mutant(what: str, first_use: tuple[str, ...] = ()) -> Callable[[type[Decoder]], type[Decoder]]:
    def register(target: type[Decoder]) -> type[Decoder]:
        MUTANTS.append(Mutant(what, target, first_use))
        return target

    return register


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    verdict: plumbline.Verdict

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
