"""A program that leaves its parameters as they were, where its reference updates the same ones, has not passed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import plumbline

STEPS = 2
Update = Callable[[torch.optim.Optimizer, list[Tensor]], object]


def run(server: str, name: str, update: Update, reference: str | None = None) -> list[plumbline.Verdict]:
    torch.manual_seed(0)
    net, draw = nn.Linear(8, 4), torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    audit = plumbline.watch(
        net, optimizer, server, job="unmoved", run=name, reference=reference, every=1, keep_trace=True
    )
    for _ in range(STEPS):
        with audit.step():
            optimizer.zero_grad()
            net(torch.randn(12, 8, generator=draw)).square().mean().backward()
            with torch.no_grad():
                update(optimizer, list(net.parameters()))
        assert audit.flush()
    verdicts = audit.verdicts()
    audit.close()
    return verdicts


def updates(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
    optimizer.step()


def updates_copies(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
    for parameter in parameters:
        parameter.clone().sub_(0.1 * parameter.grad)


def forgets(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
    pass


def test_a_target_that_never_updates(server: str) -> None:
    run(server, "updates", updates)
    for name, update in (("forgets", forgets), ("copies", updates_copies)):
        first, second = run(server, name, update, "updates")
        assert first.verdict == "INCONCLUSIVE" and "leaves them as they were" in first.sentence, first.explain()
        assert (second.verdict, second.grade, second.cause) == ("TYPE_II", "PROVEN", "STRUCTURE"), second.explain()


def test_a_reference_that_never_updates_accuses_nobody(server: str) -> None:
    run(server, "none", forgets)
    for verdict in run(server, "some", updates, "none"):
        assert verdict.verdict == "INCONCLUSIVE" and "leaves them as they were" in verdict.sentence, verdict.explain()


def test_two_programs_that_look_at_gradients_alone(server: str) -> None:
    run(server, "one", forgets)
    assert [verdict.verdict for verdict in run(server, "another", forgets, "one")] == ["TYPE_I"] * STEPS
