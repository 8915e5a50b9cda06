"""The registry of scenarios: pairs of small programs, and what the verdict on each pair must be.

A scenario is one file beside this one, named by its family (a_ to e_), holding one function with the decorator
`scenario`. The function builds the two programs afresh, as they change their own weights:

    @scenario("transformers 34191", "mean of means ...", size=(4, 24), bug=TYPE_II, fixed=TYPE_I)
    def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Reference]: ...

`cause` names, by variant, the verdict's cause where it is not the usual one: ROUNDING for TYPE_I, MATHEMATICS for
TYPE_II; "A|B" where the data decides between two right ones. `suspect` holds, by variant, a regular expression that the
place named by the verdict must match: operation, text of the source line and module, joined by blanks. `unplaced` says,
by variant, why no place can be right: every TYPE_II variant has either. Cause and place are asserted as the label is.
`says` (variant, verdict) asserts what else the verdict must say; `options` go to plumbline.compare.
`device` makes what the programs run on, where that is emulated below the capture. `live` judges the pair where one
call of plumbline.compare cannot show it, as a training run of several steps.

`variant` is one of the keywords that carry a label; `size` lies in the closed range, whose first entry is the size that
is always run; `dtype` is the format of the programs, torch.float64 for the oracle that a rival rule needs.
"""

import contextlib
import importlib
import linecache
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import plumbline

TYPE_I = "TYPE_I"
TYPE_II = "TYPE_II"

Taps = dict[str, Tensor]
Program = Callable[[], Taps]
Reference = Program | Taps  # Bare values where it is no program.
Builder = Callable[[str, int, int, torch.dtype], tuple[Program, Reference]]
Says = Callable[[str, Any], None]
Device = Callable[[], contextlib.AbstractContextManager[None]]
Live = Callable[..., plumbline.Verdict]  # Called as plumbline.compare is.

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Scenario:
    family: (
        str  # "A" founding documents, "B" bugs and fixed twins, "C" benign, "D" precision policy, "E" correspondence
    )
    name: str
    title: str
    size: tuple[int, int]
    labels: dict[str, str]  # variant to label
    build: Builder
    dtype: torch.dtype
    says: Says | None = None
    options: dict[str, Any] = field(default_factory=dict)
    cause: dict[str, str] = field(default_factory=dict)
    suspect: dict[str, str] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)
    device: Device = contextlib.nullcontext
    live: Live = plumbline.compare


@dataclass(frozen=True)
class Case:
    """One pair of programs to be judged."""

    scenario: Scenario
    variant: str
    size: int
    seed: int

    @property
    def label(self) -> str:
        return self.scenario.labels[self.variant]

    @property
    def causes(self) -> list[str]:
        usual = "MATHEMATICS" if self.label == TYPE_II else "ROUNDING"
        return self.scenario.cause.get(self.variant, usual).split("|")

    def locates(self, verdict: plumbline.Verdict) -> bool:
        """Whether the verdict's suspect is where the bug was put."""
        expected, place = self.scenario.suspect.get(self.variant), verdict.suspect
        if expected is None or place is None:
            return False
        file, _, line = place.source.partition(":")
        text = linecache.getline(str(HERE / file), int(line)).strip() if line else ""
        return re.search(expected, f"{place.op} {text} {place.module}") is not None

    @property
    def name(self) -> str:
        return f"{self.scenario.family} {self.scenario.name} [{self.variant}]"

    def programs(self, dtype: torch.dtype | None = None) -> tuple[Program, Reference]:
        torch.manual_seed(self.seed)
        return self.scenario.build(self.variant, self.size, self.seed, dtype or self.scenario.dtype)


_REGISTRY: list[Scenario] = []


def scenario(
    name: str,
    title: str,
    size: tuple[int, int],
    dtype: torch.dtype = torch.float32,
    says: Says | None = None,
    options: dict[str, Any] | None = None,
    cause: dict[str, str] | None = None,
    suspect: dict[str, str] | None = None,
    unplaced: dict[str, str] | None = None,
    device: Device = contextlib.nullcontext,
    live: Live = plumbline.compare,
    **labels: str,
) -> Callable[[Builder], Builder]:
    def register(build: Builder) -> Builder:
        family = Path(build.__code__.co_filename).name[0].upper()
        for stated in (cause or {}, suspect or {}, unplaced or {}):
            assert set(stated) <= set(labels), f"{name}: {sorted(stated)} are no variants of it"
        bugs = sorted(variant for variant, label in labels.items() if label == TYPE_II)
        placed = sorted([*(suspect or {}), *(unplaced or {})])
        assert placed == bugs, f"{name}: bugs {bugs}, of which {placed} have a place or a reason to have none"
        given = Scenario(
            family,
            name,
            title,
            size,
            labels,
            build,
            dtype,
            says,
            options or {},
            cause or {},
            suspect or {},
            unplaced or {},
            device,
            live,
        )
        _REGISTRY.append(given)
        return build

    return register


def scenarios() -> list[Scenario]:
    """All of them, in the order of their files."""
    if not _REGISTRY:
        if str(HERE) not in sys.path:
            sys.path.insert(0, str(HERE))
        for path in sorted(HERE.glob("[abcde]_*.py")):
            importlib.import_module(path.stem)
    return list(_REGISTRY)


def value(reference: Reference) -> Taps:
    return reference() if callable(reference) else reference
