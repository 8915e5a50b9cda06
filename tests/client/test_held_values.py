"""What a program holds in a tensor and the other computes, or has as a number of its text."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training import watched

import plumbline

Taps = Callable[[], dict[str, Tensor]]


def values(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def judged(server: str, target: Taps, reference: Taps) -> plumbline.Verdict:
    return plumbline.compare(target, reference, server)


@pytest.mark.parametrize("decay", [0.9, 0.999, 0.9999])
def test_a_number_may_be_held_in_a_tensor(server: str, decay: float) -> None:
    """1 - 0.999 of a tensor in fp32 is not what Python makes of 0.999, however often 0.999 stands in both."""
    held, mean, new = torch.tensor(decay), values(0, 6).abs(), values(1, 6).abs()

    def by_number() -> dict[str, Tensor]:
        return {"y": (mean * decay + new * (1 - decay)) / (1 - decay**3)}

    def by_tensor(power: int) -> Taps:
        return lambda: {"y": torch.lerp(mean, new, 1 - held) / (1 - held**power)}

    assert judged(server, by_tensor(3), by_number).verdict == "TYPE_I"
    assert judged(server, by_number, by_tensor(3)).verdict == "TYPE_I"
    assert judged(server, by_tensor(2), by_number).verdict == "TYPE_II"


class Averaged(nn.Module):
    """A layer, and the running mean of its weights by a decay in a buffer or by a number."""

    def __init__(self, held: bool, swapped: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.mean = nn.Linear(5, 3), nn.Linear(5, 3).requires_grad_(False)
        self.held, self.swapped = held, swapped
        self.register_buffer("decay", torch.tensor(0.999))

    @torch.no_grad()
    def average(self) -> None:
        for mean, weight in zip(self.mean.parameters(), self.layer.parameters(), strict=True):
            if not self.held:
                mean.mul_(0.999).add_(weight * (1 - 0.999))
            elif self.swapped:
                mean.lerp_(weight, self.decay)
            else:
                mean.lerp_(weight, 1 - self.decay)


def test_a_decay_in_a_buffer(server: str) -> None:
    def run(name: str, reference: str | None, held: bool, swapped: bool = False) -> set[str]:
        net = Averaged(held, swapped)
        optimizer = torch.optim.SGD(net.layer.parameters(), lr=0.1)

        def step(number: int) -> None:
            optimizer.zero_grad()
            F.mse_loss(net.layer(values(number, 7, 5)), values(number + 100, 7, 3)).backward()
            optimizer.step()
            net.average()

        return {verdict.verdict for verdict in watched(server, "held", name, reference, net, optimizer, 3, step)}

    run("number", None, held=False)
    assert run("buffer", "number", held=True) == {"TYPE_I"}
    assert run("swapped", "number", held=True, swapped=True) == {"TYPE_II"}


@pytest.mark.parametrize("depth", [2, 4, 6])
def test_cached_features_are_no_others(server: str, depth: int) -> None:
    """Enclosures of a network grow with its depth; what its roundings do by chance does not."""
    x, head, labels = values(0, 5, 6), values(1, 6, 3).requires_grad_(), torch.tensor([0, 1, 2, 0, 1])
    weights = [values(layer + 2, 6, 6) / 2 for layer in range(depth)]

    def features(approximate: str = "none") -> Tensor:
        h = x
        for weight in weights:
            h = F.gelu(F.layer_norm(h @ weight, [6]), approximate=approximate)
        return h

    def program(of: Callable[[], Tensor]) -> Taps:
        def taps() -> dict[str, Tensor]:
            loss = F.cross_entropy(of() @ head, labels)
            return {"loss": loss.detach(), "grad": torch.autograd.grad(loss, head)[0]}

        return taps

    def otherwise(draw: int) -> Tensor:
        """The same by other formulas, which add in another order."""
        order, h = torch.randperm(6, generator=torch.Generator().manual_seed(draw)), x
        for weight in weights:
            h = h[:, order] @ weight[order]
            h = h - h.mean(1, keepdim=True)
            h = h / (h.square().mean(1, keepdim=True) + 1e-5).sqrt()
            h = h / 2 * (1 + torch.erf(h / 2**0.5))
        return h

    cached = features()
    for legal in (otherwise(draw) for draw in range(5)):
        assert not torch.equal(legal, cached)
        right = judged(server, program(lambda legal=legal: legal), program(features))
        assert right.verdict == "TYPE_I", right.explain()
    others = [features("tanh"), cached * 1.001, cached * (1 + 3e-4 * values(9, 5, 6))]
    assert judged(server, program(lambda: cached), program(features)).verdict == "TYPE_I"
    for other in others:
        wrong = judged(server, program(lambda other=other: other), program(features))
        assert wrong.verdict in ("TYPE_II", "INCONCLUSIVE"), wrong.explain()


@pytest.mark.parametrize("offset", [3.0, 10.0, 30.0, 100.0])
def test_a_table_that_was_made_by_a_formula_that_rounds_worse(server: str, offset: float) -> None:
    points = values(0, 7, 3) + offset
    squares = points.square().sum(1)
    table = (squares[:, None] + squares - 2 * points @ points.T).clamp(min=0)

    def computed() -> dict[str, Tensor]:
        return {"k": torch.exp(-0.5 * (points[:, None] - points).square().sum(-1)), "sum": points.sum()}

    verdict = judged(server, lambda: {"k": torch.exp(-0.5 * table), "sum": points.sum()}, computed)
    if offset <= 30:
        assert verdict.verdict == "INCONCLUSIVE" and "only if" in verdict.sentence, verdict.explain()
    else:  # Less than half of its digits are left.
        assert verdict.grade != "PROVEN", verdict.explain()
    other = judged(server, lambda: {"k": torch.exp(-0.25 * table), "sum": points.sum()}, computed)
    assert other.verdict == "TYPE_II", other.explain()


SHARED = ("deviation", "logarithm", "inverse", "variance")


@pytest.mark.parametrize("shared", range(3))
def test_tables_that_are_used_for_one_another(server: str, shared: int) -> None:
    """Both hold a deviation and what was made of it, each a rounding, and each uses what the other does not."""
    x, mean = values(0, 8, 4), values(1, 4)
    exact = values(2, 4).double().abs() + 0.5
    deviation, logarithm, inverse, variance = (
        table.float() for table in (exact, exact.log(), 1 / exact, exact.square())
    )
    whole = torch.stack([deviation, logarithm, inverse, variance]).sum()

    def likelihood(scaled: Callable[[], Tensor], log: Callable[[], Tensor]) -> Taps:
        return lambda: {"loss": 0.5 * scaled() ** 2 + log(), "held": whole + deviation.sum()}

    by_deviation = likelihood(lambda: (x - mean) / deviation, lambda: logarithm)
    others = {
        "logarithm": likelihood(lambda: (x - mean) * torch.exp(-logarithm), lambda: deviation.log()),
        "inverse": likelihood(lambda: (x - mean) * inverse, lambda: deviation.log()),
        "variance": likelihood(lambda: (x - mean) / variance.sqrt(), lambda: deviation.log()),
    }
    name = SHARED[shared + 1]
    for target, reference in ((by_deviation, others[name]), (others[name], by_deviation)):
        verdict = judged(server, target, reference)
        assert verdict.verdict == "TYPE_I", verdict.explain()
    for wrong in (1e-6, 0.1):
        other = likelihood(lambda wrong=wrong: (x - mean) / (deviation + wrong), lambda: logarithm)
        verdict = judged(server, other, by_deviation)
        assert verdict.verdict == "TYPE_II", verdict.explain()
        # How what one of them alone holds was made is not known, but for two percent.
        verdict = judged(server, other, others[name])
        assert verdict.verdict == "TYPE_II" and (verdict.grade == "PROVEN" or wrong < 1e-5), verdict.explain()


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
def test_what_both_use_alike_hides_nothing(server: str, offset: float) -> None:
    """Far from zero, roundings of the data would move what is normalised by more than these factors do."""
    x = values(0, 6, 16) + offset

    def normalised(factor: float) -> Taps:
        return lambda: {"y": F.layer_norm(x, [16]) * factor, "x": x.sum()}

    assert judged(server, normalised(1), normalised(1)).verdict == "TYPE_I"
    for factor in (1.00001, 1.001):
        verdict = judged(server, normalised(factor), normalised(1))
        assert verdict.verdict in ("TYPE_II", "INCONCLUSIVE"), verdict.explain()
        assert verdict.verdict == "TYPE_II" or offset > 0


@pytest.mark.parametrize("shift", [1.0, 0.1, 0.01])
def test_factors_of_a_matrix_are_no_proof(server: str, shift: float) -> None:
    """What the factors' roundings make of a solution is more than those of the matrix."""
    a, x = values(3, 6, 8), values(4, 5, 6)
    matrix = a @ a.T + shift * torch.eye(6)
    scales, vectors = torch.linalg.eigh(matrix)

    def by_factors(power: float) -> Taps:
        return lambda: {"y": x @ vectors / scales**power @ vectors.T, "trace": scales.sum()}

    def solved() -> dict[str, Tensor]:
        return {"y": torch.linalg.solve(matrix, x.T).T, "trace": torch.trace(matrix)}

    for target, reference in ((by_factors(1), solved), (solved, by_factors(1))):
        verdict = judged(server, target, reference)
        assert verdict.grade != "PROVEN", verdict.explain()
        assert verdict.verdict != "TYPE_II" or "a loss of digits" in verdict.sentence, verdict.explain()
    wrong = judged(server, by_factors(1.5), solved)
    assert wrong.verdict == "TYPE_II" and (wrong.grade == "PROVEN" or shift < 1), wrong.explain()


def test_faults_beside_tables_that_both_hold(server: str) -> None:
    """Whatever tables, and data far from zero, are used otherwise, what differs by more than they round is a fault."""
    x, deviation = values(0, 16, 8), values(1, 8).abs() + 0.5
    far, logarithm, variance = x + 1e5, deviation.log(), deviation.square()
    pairs: list[tuple[Callable[[], Tensor], Callable[[], Tensor]]] = [
        (lambda: x / deviation, lambda: x / variance),
        (lambda: x / (deviation + 1e-3), lambda: x * torch.exp(-logarithm)),
        (lambda: x * torch.exp(-logarithm) + logarithm, lambda: x / deviation + 0.5 * logarithm),
        (lambda: F.gelu(far - 1e5), lambda: F.gelu(far - 1e5, approximate="tanh")),
        (lambda: far @ x[:8] + variance, lambda: far @ x[:8]),
    ]

    def program(of: Callable[[], Tensor]) -> Taps:
        return lambda: {"y": of(), "held": (deviation + logarithm + variance).sum() + far.sum()}

    for right, wrong in pairs:
        for target, reference in ((wrong, right), (right, wrong)):
            verdict = judged(server, program(target), program(reference))
            assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()
    legal = judged(server, program(lambda: x / variance * torch.exp(logarithm)), program(lambda: x / deviation))
    assert legal.verdict == "TYPE_I", legal.explain()
    small = judged(server, program(lambda: x / (deviation + 1e-5)), program(lambda: x * torch.exp(-logarithm)))
    assert small.verdict == "TYPE_II" and "which both programs hold" in small.sentence, small.explain()
    # Data that lost half of its digits would be another after its mean was taken off.
    biased = program(lambda: F.layer_norm(far, [8]))
    unbiased = program(lambda: (far - far.mean(1, keepdim=True)) / far.std(1, keepdim=True))
    for target, reference in ((biased, unbiased), (unbiased, biased)):
        verdict = judged(server, target, reference)
        assert verdict.verdict == "TYPE_II", verdict.explain()


@pytest.mark.parametrize("first", [100, 1000, 4000])
def test_a_table_that_one_of_them_makes_again_is_no_proof(server: str, first: int) -> None:
    """Cosines of large angles lose digits where the angle was rounded, and both use the table elsewhere."""
    positions, x, y = torch.arange(first, first + 10.0), values(0, 10), values(1, 10)
    table = torch.cos(positions * 10000**-0.25)

    def program(again: Callable[[], Tensor]) -> Taps:
        return lambda: {"y": torch.tanh(x * table) * again() + y}

    verdict = judged(server, program(lambda: torch.cos(positions / 10000**0.25)), program(lambda: table))
    assert verdict.grade != "PROVEN", verdict.explain()
    wrong = judged(server, program(lambda: torch.cos(positions / 10000**0.26)), program(lambda: table))
    assert (wrong.verdict, wrong.grade) == ("TYPE_II", "PROVEN"), wrong.explain()


@pytest.mark.parametrize("factor", [1.0, 1.001, 1.003])
def test_what_was_taken_for_rounding_is_not_told_apart(server: str, factor: float) -> None:
    """A table that one holds, and the other makes in bf16, is known no better than that."""
    x, powers = values(0, 12), torch.arange(12.0)
    table = 0.997**powers * factor

    def made() -> dict[str, Tensor]:
        return {"y": x * (torch.tensor(0.997) ** powers).bfloat16().float()}

    for target, reference in ((lambda: {"y": x * table}, made), (made, lambda: {"y": x * table})):
        verdict = judged(server, target, reference)
        assert verdict.verdict in ("TYPE_I", "INCONCLUSIVE"), verdict.explain()
        assert verdict.math_resolution >= (factor - 1) / 2, verdict.explain()
        assert factor > 1 or verdict.math_resolution < 1e-5, verdict.explain()


def test_a_table_of_what_is_nothing_is_no_proof(server: str) -> None:
    """The sine of a multiple of pi is what its angle's rounding leaves."""
    x, whole = values(0, 8), math.pi * torch.arange(8.0)
    sine = torch.sin(whole)

    def program(sines: Callable[[], Tensor], cosines: Callable[[], Tensor]) -> Taps:
        return lambda: {"y": (x * sines() + x).tanh() * cosines()}

    turned = program(lambda: torch.sin(whole), lambda: torch.cos(whole + math.pi / 4))
    apart = program(lambda: sine, lambda: (torch.cos(whole) - torch.sin(whole)) / math.sqrt(2))
    assert judged(server, apart, turned).grade != "PROVEN"
    wrong = judged(server, program(lambda: sine, lambda: torch.cos(whole) * 0.7072), turned)
    assert wrong.verdict == "TYPE_II", wrong.explain()


def made_in_fp32() -> dict[str, tuple[Tensor, float]]:
    decay = torch.tensor(0.999)
    return {
        "difference": (1 - decay, 1 - 0.999),
        "logarithm": (decay.log(), math.log(0.999)),
        "power": (decay**500, 0.999**500),
        "coarse": (1 - torch.tensor(0.9999), 1 - 0.9999),
    }


@pytest.mark.parametrize("made", list(made_in_fp32()))
def test_a_number_that_one_made_before_the_step_is_no_proof(server: str, made: str) -> None:
    x = values(0, 6)
    number, exact = made_in_fp32()[made]
    for target, reference in (
        (lambda: {"y": x * number}, lambda: {"y": x * exact}),
        (lambda: {"y": x * exact}, lambda: {"y": x * number}),
    ):
        verdict = judged(server, target, reference)
        assert verdict.grade != "PROVEN", verdict.explain()
        assert all(tap.grade != "PROVEN" for tap in verdict.taps.values()), verdict.explain()
    # What somebody wrote was made by no formula.
    wrong = judged(server, lambda: {"y": x * torch.tensor(0.9989)}, lambda: {"y": x * 0.999})
    assert (wrong.verdict, wrong.grade) == ("TYPE_II", "PROVEN"), wrong.explain()


def test_the_resolution_is_that_of_what_was_taken_for_rounding(server: str) -> None:
    """The loss has nothing to do with what both hold, and another tap agrees as far as that is rounded."""
    x, exact = values(0, 6), 1 - 1e-3 * (1 + values(1, 6).abs().double())
    table, logarithm = exact.float(), exact.log().float()
    held = (table + logarithm).sum()
    verdict = judged(
        server,
        lambda: {"loss": x.square().mean(), "y": x * table.log() * (1 + 1e-5) + 0 * held},
        lambda: {"loss": x.square().mean(), "y": x * logarithm + 0 * held},
    )
    assert verdict.verdict == "TYPE_I" and verdict.math_resolution > 1e-5, verdict.explain()


class Normalised(nn.Module):
    """Data by the statistics that its buffers hold, or by what those were folded into."""

    def __init__(self, folded: bool, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.folded, self.factor = nn.Linear(4, 2), folded, factor
        mean, variance = torch.linspace(-1, 1, 4), torch.linspace(0.1, 2, 4)
        if folded:
            self.register_buffer("scale", variance.rsqrt())
            self.register_buffer("shift", -mean * variance.rsqrt())
        else:
            self.register_buffer("mean", mean)
            self.register_buffer("variance", variance)

    def forward(self, x: Tensor) -> Tensor:
        if self.folded:
            return self.head(x * self.scale * self.factor + self.shift)
        return self.head((x - self.mean) / self.variance.sqrt())


def test_buffers_that_were_folded_are_compared_at_every_step(server: str) -> None:
    data = values(0, 3, 5, 4)

    def run(name: str, reference: str | None, net: nn.Module) -> set[str]:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(number: int) -> None:
            optimizer.zero_grad()
            net(data[number]).square().mean().backward()
            optimizer.step()

        return {verdict.verdict for verdict in watched(server, "folded", name, reference, net, optimizer, 3, step)}

    assert run("statistics", None, Normalised(folded=False)) == {"TYPE_I"}
    assert run("folded", "statistics", Normalised(folded=True)) == {"TYPE_I"}
    assert run("wrong", "statistics", Normalised(folded=True, factor=1.01)) == {"TYPE_II"}


class Turned(nn.Module):
    """It holds a table and what that was made of."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(values(0, 10))
        self.register_buffer("positions", torch.arange(1000, 1010.0))
        self.register_buffer("table", torch.cos(self.positions * 10000**-0.25))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.weight * self.table)


def test_a_table_that_an_update_makes_again_is_no_proof(server: str) -> None:
    data = values(1, 3, 5, 10)

    def run(name: str, reference: str | None, root: float | None) -> list[plumbline.Verdict]:
        net = Turned()

        def step(number: int) -> None:
            net.weight.grad = None
            net(data[number]).square().mean().backward()
            with torch.no_grad():
                factor = net.table if root is None else torch.cos(net.positions / 10000**root)
                net.weight.sub_(0.1 * net.weight.grad * factor)

        return watched(server, "again", name, reference, net, None, 3, step)

    assert {verdict.verdict for verdict in run("held", None, None)} == {"TYPE_I"}
    assert all(verdict.grade != "PROVEN" for verdict in run("made", "held", 0.25))
    assert {verdict.verdict for verdict in run("wrong", "held", 0.26)} == {"TYPE_II"}


class Rotating(nn.Module):
    """Angles of a table that is made anew each time or, `cached`, kept in a buffer too large to be kept of a reference:
    what another program has under its name, and does not use, is not that."""

    def __init__(self, cached: bool) -> None:
        super().__init__()
        self.first, self.cached, self.full = nn.Linear(8, 8), cached, False
        self.register_buffer("table", torch.zeros(8192, 8), persistent=False)

    def angles(self, count: int) -> Tensor:
        if self.full:
            return self.table[:count]
        made = torch.arange(float(count))[:, None] * torch.logspace(0, -3, 8)
        if self.cached:
            self.table[:count], self.full = made, True
        return made

    def forward(self, x: Tensor) -> Tensor:
        return (self.first(x) * self.angles(len(x)).cos()).square().mean()


@pytest.mark.parametrize("cached", [False, True])
def test_a_table_that_one_of_them_does_not_use(server: str, cached: bool) -> None:
    def run(name: str, reference: str | None, cached: bool) -> list[plumbline.Verdict]:
        torch.manual_seed(0)
        net = Rotating(cached)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(number: int) -> None:
            optimizer.zero_grad()
            net(values(number, 6, 8)).backward()
            optimizer.step()

        return watched(server, "tables", name, reference, net, optimizer, 3, step)

    run(f"reference-{cached}", None, not cached)
    for verdict in run(f"target-{cached}", f"reference-{cached}", cached)[1:]:
        assert verdict.verdict != "TYPE_II", verdict.explain()
