"""A weight that nobody changed: between two steps of a run one bit of a parameter flips."""

import copy
import uuid
from typing import Any

import torch
from models import MLP, gradients, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import nn

import plumbline


def says(variant: str, verdict: Any) -> None:
    if variant == "flipped":
        assert verdict.cause == "INVARIANT" and verdict.suspect.op == "leaf param:fc_1.weight", verdict.explain()


class _Training:
    """The second of two steps, as a program; the first is run when the pair is built."""

    def __init__(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor, flip: bool) -> None:
        self.model, self.x, self.y, self.flip = model, x, y, flip
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = (self.model(self.x) - self.y).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def between(self) -> None:
        if self.flip:
            with torch.no_grad():
                self.model.fc_1.weight[3, 5] *= 1 + 2**-20

    def __call__(self) -> dict[str, torch.Tensor]:
        self.step()
        self.between()
        return {"loss": self.step(), **gradients(self.model), **weights(self.model)}


def live(target: _Training, reference: _Training, server: str) -> Any:
    job = f"changed-weight-{uuid.uuid4().hex[:12]}"
    verdicts = []
    for run, training in (("reference", reference), ("target", target)):
        pair = None if run == "reference" else "reference"
        with plumbline.watch(
            training.model, training.optimizer, server, job=job, run=run, reference=pair, every=1, on_type_ii="ignore"
        ) as audit:
            for between in (training.between, lambda: None):
                with audit.step():
                    training.step()
                between()
            assert audit.flush()
            verdicts = audit.verdicts()
    return verdicts[-1]


@scenario(
    "changed weight",
    "a weight that nobody changed, between two steps",
    size=(8, 32),
    says=says,
    live=live,
    flipped=TYPE_II,
    untouched=TYPE_I,
    cause={"flipped": "INVARIANT"},
    suspect={"flipped": r"fc_1\.weight"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    model = MLP(16).to(dtype)
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)
    target = _Training(copy.deepcopy(model), x, y, flip=variant == "flipped")
    return target, _Training(model, x, y, flip=False)
