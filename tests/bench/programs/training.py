"""What a training program is, here: models, optimizers, one step, and the state that its author names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
    """`build` makes the program anew; what it is given wraps the parts that people run in mixed precision."""

    name: str
    kind: str
    build: Callable[[Cast], Training]

    def training(self, seed: int) -> Training:
        torch.manual_seed(seed)
        return self.build(_autocast if self.kind == "bf16" else contextlib.nullcontext)


@contextlib.contextmanager
def _autocast() -> Iterator[None]:
    with torch.autocast("cpu", torch.bfloat16):
        yield


PROGRAMS: list[Program] = []


def program(bf16: bool = True) -> Callable[[Callable[[Cast], Training]], Callable[[Cast], Training]]:
    """Registers a function that builds a healthy program, in fp32 and, where people train so, in bf16."""

    def register(build: Callable[[Cast], Training]) -> Callable[[Cast], Training]:
        for kind in ("fp32", "bf16") if bf16 else ("fp32",):
            PROGRAMS.append(Program(build.__name__, kind, build))
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
