"""A program that leaves its parameters as they were, where its reference updates the same ones, has not passed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from training import watched

import plumbline

STEPS = 2
Update = Callable[[torch.optim.Optimizer, list[Tensor]], object]


def run(server: str, name: str, update: Update, reference: str | None = None) -> list[plumbline.Verdict]:
    torch.manual_seed(0)
    net, draw = nn.Linear(8, 4), torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(number: int) -> None:
        optimizer.zero_grad()
        net(torch.randn(12, 8, generator=draw)).square().mean().backward()
        with torch.no_grad():
            update(optimizer, list(net.parameters()))

    return watched(server, "unmoved", name, reference, net, optimizer, STEPS, step)


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


def halts(skip: Callable[[Tensor, int], bool]) -> Callable[..., list[plumbline.Verdict]]:
    """Runs of a program that skips the update of some steps."""

    def run(server: str, name: str, reference: str | None = None) -> list[plumbline.Verdict]:
        torch.manual_seed(0)
        net, draw = nn.Linear(8, 4), torch.Generator().manual_seed(1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(number: int) -> None:
            optimizer.zero_grad()
            loss = net(torch.randn(12, 8, generator=draw)).square().mean() * (100 if number == 1 else 1)
            loss.backward()
            if not skip(loss, number):
                optimizer.step()

        return watched(server, "halts", name, reference, net, optimizer, 3, step)

    return run


def test_a_reference_that_skips_one_update(server: str) -> None:
    halts(lambda loss, number: number == 1)(server, "skips")
    first, second, third = halts(lambda loss, number: False)(server, "goes-on", "skips")
    assert (first.verdict, third.verdict) == ("TYPE_I", "TYPE_I"), first.explain() + third.explain()
    assert (second.verdict, second.grade, second.cause) == ("TYPE_II", "FIRST_ORDER", "STRUCTURE"), second.explain()


def test_thresholds_of_python_that_may_meet_a_rounding(server: str) -> None:
    halts(lambda loss, number: loss.item() > 20)(server, "low")
    _, second, _ = halts(lambda loss, number: loss.item() > 2000)(server, "high", "low")
    assert second.verdict == "INCONCLUSIVE" and "leaves them as they were" in second.sentence, second.explain()


def overflows(repairs: bool) -> Callable[..., list[plumbline.Verdict]]:
    """Runs of a program whose loss is infinite in one step, by its mathematics: a scaler skips that, or the gradients
    are made finite first."""

    def run(server: str, name: str, reference: str | None = None) -> list[plumbline.Verdict]:
        torch.manual_seed(0)
        net, draw = nn.Linear(8, 4), torch.Generator().manual_seed(1)
        optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), torch.amp.GradScaler("cpu", 4.0)

        def step(number: int) -> None:
            optimizer.zero_grad()
            loss = net(torch.randn(12, 8, generator=draw)).square().mean()
            scaler.scale(loss * (float("inf") if number == 1 else 1)).backward()
            for parameter in net.parameters() if repairs else []:
                parameter.grad.nan_to_num_(0, 0, 0)
            scaler.step(optimizer)
            scaler.update()

        return watched(server, "overflows", name, reference, net, optimizer, 2, step)

    return run


def test_an_overflow_of_mathematics_excuses_no_update(server: str) -> None:
    overflows(False)(server, "skips")
    assert [verdict.verdict for verdict in overflows(False)(server, "again", "skips")] == ["TYPE_I"] * 2
    first, second = overflows(True)(server, "repairs", "skips")
    assert first.verdict == "TYPE_I" and second.verdict == "TYPE_II", second.explain()
    overflows(True)(server, "repairs-first")
    first, second = overflows(False)(server, "skips-then", "repairs-first")
    assert first.verdict == "TYPE_I" and second.verdict == "TYPE_II", second.explain()


def freezes(how: str) -> Callable[..., list[plumbline.Verdict]]:
    """Runs of a program that trains one layer of two from its second step on."""

    def run(server: str, name: str, reference: str | None = None) -> list[plumbline.Verdict]:
        torch.manual_seed(0)
        net, draw = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4)), torch.Generator().manual_seed(1)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)

        def step(number: int) -> None:
            optimizer.zero_grad()
            net[0].requires_grad_(number == 0 or how != "requires_grad")
            net(torch.randn(12, 8, generator=draw)).square().mean().backward()
            for parameter in net[0].parameters() if number > 0 and how == "none" else []:
                parameter.grad = None
            optimizer.step()

        return watched(server, "freezes", name, reference, net, optimizer, 3, step)

    return run


def test_a_gradient_that_trains_nothing_need_not_be_there(server: str) -> None:
    for how in ("requires_grad", "none", "not at all"):
        freezes(how)(server, how.replace(" ", "-"))
    for how, other in (("requires_grad", "none"), ("none", "requires_grad")):
        verdicts = freezes(how)(server, f"{how}-again", other)
        assert [verdict.verdict for verdict in verdicts] == ["TYPE_I"] * 3, [verdict.explain() for verdict in verdicts]
    for how in ("requires_grad", "none"):
        _, second, _ = freezes(how)(server, f"{how}-alone", "not-at-all")
        assert (second.verdict, second.cause) == ("TYPE_II", "STRUCTURE"), second.explain()


def frozen(server: str, name: str, how: str, reference: str | None = None, rate: float = 0.1) -> list[str]:
    """Trains the second of two layers; `how` the first one is kept as it is."""
    torch.manual_seed(0)
    net, draw = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4)), torch.Generator().manual_seed(1)
    first, second = list(net[0].parameters()), list(net[2].parameters())
    for parameter in first:
        parameter.requires_grad_(how != "no gradient")
    groups = [{"params": first, "lr": 0.0}, {"params": second, "lr": rate}]
    optimizer = torch.optim.SGD(groups[1:] if how == "no gradient" else groups, lr=rate)

    def step(number: int) -> None:
        before = [parameter.detach().clone() for parameter in first]
        optimizer.param_groups[0]["lr"] = rate if how in ("put back", "no gradient") else 0.0
        optimizer.zero_grad()
        net(torch.randn(12, 8, generator=draw)).square().mean().backward()
        optimizer.step()
        if how == "put back":
            with torch.no_grad():
                for parameter, kept in zip(first, before, strict=True):
                    parameter.copy_(kept)

    return [one.verdict for one in watched(server, "frozen", name, reference, net, optimizer, STEPS, step)]


def test_layers_that_are_frozen_in_any_way(server: str) -> None:
    ways = ("no gradient", "no rate", "put back")
    for way in ways:
        frozen(server, way.replace(" ", "-"), way)
    for way in ways:
        for other in ways:
            name = f"{way}-beside-{other}".replace(" ", "-")
            if way != other:
                assert frozen(server, name, way, other.replace(" ", "-")) == ["TYPE_I"] * STEPS


def test_a_step_in_which_nothing_moves_excuses_no_missing_gradient(server: str) -> None:
    frozen(server, "warm-up", "no rate", rate=0.0)
    assert frozen(server, "warm-up-cut", "no gradient", "warm-up", rate=0.0) == ["TYPE_II"] * STEPS
