"""What a training program is, here: models, optimizers, one step, and the state that its author names."""

from __future__ import annotations

import contextlib
import linecache
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

Cast = Callable[[], contextlib.AbstractContextManager]


@dataclass
class Training:
    models: list[torch.nn.Module]
    optimizers: list[Any]
    step: Callable[[], Any]
    state: dict[str, Any] = field(default_factory=dict)

    def tensors(self) -> list[torch.Tensor]:
        return [value for model in self.models for value in model.state_dict().values()]


@dataclass(frozen=True)
class Program:
    """`build` makes the program anew; what it is given wraps the parts that people run in mixed precision. `bug`: where
    it can be built with a bug, a regular expression for that one's place (see located); empty: it cannot."""

    name: str
    kind: str
    build: Callable[..., Training]
    bug: str = ""

    def training(self, seed: int, wrong: bool = False) -> Training:
        torch.manual_seed(seed)
        cast = _autocast if self.kind == "bf16" else contextlib.nullcontext
        return self.build(cast, wrong) if self.bug else self.build(cast)

    def located(self, verdict: Any) -> bool:
        """Whether the suspect, its operation or its line, is the bug's place."""
        if verdict.suspect is None:
            return False
        file, _, line = verdict.suspect.source.partition(":")
        text = linecache.getline(str(Path(__file__).parent / file), int(line)) if line else ""
        return re.search(self.bug, f"{verdict.suspect.op} {text}") is not None


@contextlib.contextmanager
def _autocast() -> Iterator[None]:
    with torch.autocast(torch.get_default_device().type, torch.bfloat16):
        yield


PROGRAMS: list[Program] = []


def program(bf16: bool = True, wrong: str = "") -> Callable[[Callable[..., Training]], Callable[..., Training]]:
    """Registers a function that builds a healthy program, in fp32 and, where people train so, in bf16. `wrong`: it
    takes another argument, whether it is to be built with its bug, whose place this tells."""

    def register(build: Callable[..., Training]) -> Callable[..., Training]:
        for kind in ("fp32", "bf16") if bf16 else ("fp32",):
            PROGRAMS.append(Program(build.__name__, kind, build, wrong))
        return build

    return register


def trained(
    model: torch.nn.Module, optimizer: Any, loss: Callable[[], torch.Tensor], cast: Cast, after: Any = None
) -> Training:
    """The plain loop: gradients from a loss, a step, and what comes after it."""

    def step() -> None:
        optimizer.zero_grad()
        with cast():
            value = loss()
        value.backward()
        optimizer.step()
        if after is not None:
            after()

    return Training([model], [optimizer], step)
