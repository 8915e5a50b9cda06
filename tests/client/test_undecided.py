"""What rounding alone decides proves nothing: a value that is zero by mathematics and has a sign, an order, a remainder
or an angle all the same; numbers that numpy computes where it cancels; ties that numpy or Python breaks. Beside them,
what differs by mathematics is found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import plumbline

Program = Callable[[], dict[str, Tensor]]


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


A, B = drawn(1, 40, 7), drawn(2, 40, 7)
SIDE = B[:, 0]


def zero(p: Tensor) -> Tensor:
    """Softmax's gradient, summed over a row."""
    return (p * (B - (p * B).sum(-1, keepdim=True))).sum(-1)


USES: dict[str, Callable[[Tensor], Tensor]] = {
    "argmax": lambda d: SIDE * torch.stack([d, -d], 1).argmax(1),
    "top of them": lambda d: B[d.topk(5)[1]],
    "order": lambda d: B[d.argsort()],
    "step": lambda d: SIDE * torch.heaviside(d, 0 * d + 0.5),
    "active": lambda d: SIDE * (d.relu() > 0),
    "sign bit": lambda d: SIDE * torch.signbit(d),
    "copied sign": lambda d: torch.copysign(SIDE, d),
    "remainder": lambda d: SIDE * torch.remainder(d, 1.0),
    "angle at its cut": lambda d: torch.atan2(d, -SIDE.abs()),
    "its own size": lambda d: SIDE * d / d.abs().clamp_min(1e-30),
}


def pair(use: Callable[[Tensor], Tensor], factor: float) -> tuple[Program, Program]:
    def of(p: Tensor, by: float) -> dict[str, Tensor]:
        return {"used": use(zero(p)), "beside": p.sum(0) * by}

    return lambda: of(A.softmax(-1), factor), lambda: of(A.exp() / A.exp().sum(-1, keepdim=True), 1.0)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_hangs_on_a_zero_accuses_nobody(server: str, use: Callable[[Tensor], Tensor]) -> None:
    verdict = plumbline.compare(*pair(use, 1.0), server)
    assert verdict.verdict != "TYPE_II", verdict.explain()


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_differs_beside_it_is_found(server: str, use: Callable[[Tensor], Tensor]) -> None:
    verdict = plumbline.compare(*pair(use, 1 + 1e-5), server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


X = drawn(3, 12) + 50  # Its variance loses five digits in fp32.


def variance_of(x: np.ndarray) -> np.floating:
    return (x * x).mean() - x.mean() ** 2


def variance() -> Tensor:
    return (X * X).mean() - X.mean() ** 2


HANDED: dict[str, tuple[Program, Program]] = {
    "a tensor of a number": (
        lambda: {"y": X * torch.tensor(variance_of(X.numpy()))},
        lambda: {"y": X * variance()},
    ),
    "an array of no dimension": (
        lambda: {"y": X * torch.from_numpy(np.asarray(variance_of(X.numpy())))},
        lambda: {"y": X * variance()},
    ),
    "numbers of a list": (
        lambda: {"y": X * torch.tensor([float(variance_of(X.numpy()))] * 12)},
        lambda: {"y": X * variance()},
    ),
    "an epsilon": (
        lambda: {"y": F.layer_norm(X, [12], eps=float(variance_of(X.numpy())))},
        lambda: {"y": (X - X.mean()) / (X.var(unbiased=False) + variance()).sqrt()},
    ),
    "single precision of a list": (
        lambda: {"y": X * float(variance_of(np.array(X.tolist(), dtype=np.float32)))},
        lambda: {"y": X * variance()},
    ),
    "arrays in both": (
        lambda: {"y": X * torch.from_numpy(np.full(12, variance_of(X.numpy())))},
        lambda: {"y": X * torch.from_numpy(np.full(12, ((X.numpy() - X.numpy().mean()) ** 2).mean()))},
    ),
}


@pytest.mark.parametrize("target, reference", HANDED.values(), ids=HANDED)
def test_what_cancels_in_numpy_accuses_nobody(server: str, target: Program, reference: Program) -> None:
    verdict = plumbline.compare(target, reference, server)
    assert verdict.verdict != "TYPE_II", verdict.explain()


def test_another_formula_in_numpy_is_found_and_not_proven(server: str) -> None:
    verdict = plumbline.compare(
        lambda: {"y": X * torch.tensor(X.numpy().std(ddof=1))}, lambda: {"y": X * X.std(unbiased=False)}, server
    )
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "FIRST_ORDER"), verdict.explain()


EVEN = (drawn(4, 40, 30) + drawn(4, 40, 30).flip(1)) / 2
WEIGHTS = torch.stack([drawn(5, 30), drawn(5, 30).flip(0)], 1)  # Both columns give one product.
HALVES = (torch.arange(-60, 60).double() * 0.05).float()
ROWS = drawn(6, 200, 4)


def products(in_order: bool) -> Tensor:
    return (EVEN[:, :, None] * WEIGHTS).cumsum(1)[:, -1] if in_order else EVEN @ WEIGHTS


TIES: dict[str, Callable[[bool], Tensor]] = {
    "argmax of numpy": lambda other: ROWS[torch.from_numpy(products(other).numpy().argmax(1))],
    "branch": lambda other: torch.stack(
        [EVEN[i] if a >= b else -EVEN[i] for i, (a, b) in enumerate(products(other).tolist())]
    ),
    "rounding of numpy": lambda other: torch.from_numpy(np.round((HALVES / 0.1 if other else HALVES * 10).numpy())) * 2,
    "rounding of Python": lambda other: torch.stack(
        [ROWS[round(v) + 60] for v in (HALVES / 0.1 if other else HALVES * 10).tolist()]
    ),
}


@pytest.mark.parametrize("program", TIES.values(), ids=TIES)
def test_ties_that_python_breaks_accuse_nobody(server: str, program: Callable[[bool], Tensor]) -> None:
    verdict = plumbline.compare(lambda: {"y": program(True)}, lambda: {"y": program(False)}, server)
    assert verdict.verdict != "TYPE_II", verdict.explain()


def test_a_branch_that_is_no_tie_is_found(server: str) -> None:
    def step(low: float) -> dict[str, Tensor]:
        mean = A.exp().mean()
        return {"y": SIDE * mean if mean.item() > low else -SIDE * mean}

    verdict = plumbline.compare(lambda: step(0.1), lambda: step(10.0), server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


CORNER = drawn(7, 40).clamp(min=0)  # Half of it is 0.
ANGLES: dict[str, tuple[Program, Program]] = {
    "relu of what is turned": (
        lambda: {"y": torch.atan2(SIDE.clamp(max=0), B[:, 1])},
        lambda: {"y": torch.atan2(-F.relu(-SIDE), B[:, 1])},
    ),
    "conjugate": (
        lambda: {"y": torch.angle(torch.complex(-A[:, 0].abs(), CORNER)) * -1},
        lambda: {"y": torch.angle(torch.complex(-A[:, 0].abs(), -CORNER))},
    ),
    "difference turned": (
        lambda: {"y": torch.atan2(CORNER - CORNER.round(), B[:, 1])},
        lambda: {"y": torch.atan2(-(CORNER.round() - CORNER), B[:, 1])},
    ),
    "rounded": (
        lambda: {"y": torch.atan2(torch.round(SIDE * 0.4), B[:, 1])},
        lambda: {"y": torch.atan2(torch.floor(SIDE * 0.4 + 0.5), B[:, 1])},
    ),
}


@pytest.mark.parametrize("target, reference", ANGLES.values(), ids=ANGLES)
def test_the_sign_of_an_exact_zero_proves_nothing(server: str, target: Program, reference: Program) -> None:
    verdict = plumbline.compare(target, reference, server)
    assert verdict.verdict != "TYPE_II", verdict.explain()


def test_a_bug_beside_the_sign_of_a_zero_is_proven(server: str) -> None:
    def loss(y: Tensor, mean: float) -> dict[str, Tensor]:
        return {"loss": (torch.atan2(y, -A[:, 0].abs()) - mean).square().mean()}

    verdict = plumbline.compare(lambda: loss(-CORNER, 0.5), lambda: loss(CORNER * -1 + 0, 0.6), server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


INFINITIES: dict[str, Callable[[float], tuple[Program, Program]]] = {
    "a quotient": lambda by: (lambda: {"y": torch.exp(-1 / (0 - CORNER)) * by}, lambda: {"y": torch.exp(-1 / -CORNER)}),
    "itself": lambda by: (lambda: {"y": by / (0 - CORNER)}, lambda: {"y": 1 / -CORNER}),
    "a negative power": lambda by: (lambda: {"y": (0 - CORNER) ** -3 * by}, lambda: {"y": (-CORNER) ** -3}),
    "one in another": lambda by: (
        lambda: {"y": torch.exp(by / (0 - torch.exp(-1 / (0 - CORNER))))},
        lambda: {"y": torch.exp(1 / -torch.exp(-1 / (0 * -CORNER - CORNER)))},
    ),
}


@pytest.mark.parametrize("programs", INFINITIES.values(), ids=INFINITIES)
def test_infinities_by_the_sign_of_a_zero_accuse_nobody(
    server: str, programs: Callable[[float], tuple[Program, Program]]
) -> None:
    verdict = plumbline.compare(*programs(1.0), server)
    assert verdict.verdict != "TYPE_II", verdict.explain()


@pytest.mark.parametrize("programs", INFINITIES.values(), ids=INFINITIES)
def test_a_bug_beside_such_infinities_is_found(
    server: str, programs: Callable[[float], tuple[Program, Program]]
) -> None:
    verdict = plumbline.compare(*programs(1 + 1e-5), server)
    assert verdict.verdict == "TYPE_II", verdict.explain()


def test_infinities_that_differ_otherwise_are_found(server: str) -> None:
    verdict = plumbline.compare(lambda: {"y": 1 / -CORNER}, lambda: {"y": 1 / -(CORNER + 1e-3)}, server)
    assert verdict.verdict == "TYPE_II", verdict.explain()


GRID = torch.stack(torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij"), -1).view(-1, 2)
APART = GRID[:, None] - GRID
SIXES = torch.tensor([6.0, 9, 4, 5])
MET: dict[str, tuple[Callable[[], Tensor], float]] = {
    "roots": (lambda: APART.pow(2).sum(-1).sqrt(), 5),
    "norms": (lambda: APART.norm(dim=-1), 5),
    "distances": (lambda: torch.cdist(GRID[:20], GRID[:20]), 3),
    "distances by a product": (lambda: torch.cdist(GRID, GRID), 3),
    "quotients": (lambda: SIXES / torch.tensor([3.0, 3, 2, 5]), 2),
    "means": (lambda: torch.tensor([[1.0, 2, 3], [4, 5, 7]]).mean(1), 2),
    "reciprocals": (lambda: torch.tensor([4.0, 2, 3, 0.5]).reciprocal(), 0.5),
}


@pytest.mark.parametrize("of, at", MET.values(), ids=MET)
def test_a_threshold_that_is_met_exactly_is_mathematics(server: str, of: Callable[[], Tensor], at: float) -> None:
    verdict = plumbline.compare(
        lambda: {"y": (of() > at).sum(-1) * 1.0}, lambda: {"y": (of() >= at).sum(-1) * 1.0}, server
    )
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


@pytest.mark.parametrize("of, at", MET.values(), ids=MET)
def test_a_threshold_that_another_formula_rounds_accuses_nobody(
    server: str, of: Callable[[], Tensor], at: float
) -> None:
    verdict = plumbline.compare(
        lambda: {"y": (of() * 0.1 > at * 0.1).sum(-1) * 1.0}, lambda: {"y": (of() > at).sum(-1) * 1.0}, server
    )
    assert verdict.verdict != "TYPE_II", verdict.explain()


HELD: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "clamped": (lambda h: h.clamp(-1, 1) == 1, lambda h: h.clamp(-1, 1).abs() == 1),
    "active": (lambda h: h.relu() > 0, lambda h: h.relu() >= 0),
    "at a minimum": (
        lambda h: torch.minimum(h, SIDE[:5]) == SIDE[:5],
        lambda h: torch.minimum(h, SIDE[:5]) <= SIDE[:5],
    ),
}


@pytest.mark.parametrize("one, other", HELD.values(), ids=HELD)
def test_what_a_clamp_holds_is_compared_exactly(
    server: str, one: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor]
) -> None:
    verdict = plumbline.compare(
        lambda: {"y": one(A @ B[:7, :5]).float().mean()}, lambda: {"y": other(A @ B[:7, :5]).float().mean()}, server
    )
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


def test_which_of_several_writes_stays_is_said_to_be_open(server: str) -> None:
    index = torch.tensor([0, 2, 2, 5, 0])

    def written() -> dict[str, Tensor]:
        x = A[:6].clone()
        x[index] += B[:5]
        return {"x": x}

    verdict = plumbline.compare(written, lambda: {"x": A[:6].index_add(0, index, B[:5])}, server)
    assert (verdict.verdict, verdict.cause) == ("INCONCLUSIVE", "UNANSWERED"), verdict.explain()
    assert "several values written to one place" in verdict.explain() and "index_put" in verdict.explain()


LENGTHS = [6, 3, 4]


def last_states(packed: bool, late: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    gru, x = torch.nn.GRU(4, 5, batch_first=True), drawn(8, 3, 6, 4)
    if packed:
        given = torch.nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
        h = gru(given)[1][0]
    else:
        h = torch.stack([gru(x)[0][i, min(n - 1 + late, 5)] for i, n in enumerate(LENGTHS)])
    h.square().sum().backward()
    return {"h": h, "grad": gru.weight_hh_l0.grad}


def test_memory_that_is_overwritten_whole_stands_before_nothing(server: str) -> None:
    """What inverts a permutation starts from an empty tensor."""
    same = plumbline.compare(lambda: last_states(True, 0), lambda: last_states(False, 0), server)
    assert same.verdict == "TYPE_I", same.explain()
    late = plumbline.compare(lambda: last_states(True, 0), lambda: last_states(False, 1), server)
    assert (late.verdict, late.grade) == ("TYPE_II", "PROVEN"), late.explain()
