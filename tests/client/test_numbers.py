"""Numbers that leave for Python (`.item()`) and come back as arguments: other roundings of them are no other
mathematics, another program is."""

import copy
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline

Program = Callable[[], dict[str, Tensor]]
LIMIT = 0.01


def norm(model: nn.Module) -> Tensor:
    return torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))


def by_number(model: nn.Module, limit: float) -> None:
    coefficient = min(1.0, limit / (norm(model).item() + 1e-6))
    for p in model.parameters():
        p.grad.mul_(coefficient)


def by_root(model: nn.Module, limit: float) -> None:
    by_number(model, math.sqrt(limit**2))


def on_device(model: nn.Module, limit: float) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)


def not_at_all(model: nn.Module, limit: float) -> None:
    pass


def logged(model: nn.Module, limit: float) -> None:
    norm(model).item()


class Training:
    """One step of a small network; `parts`: in how many parts its batch goes, which is a matter of rounding."""

    def __init__(self, seed: int = 3) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.x, self.y = torch.randn(12, 16), torch.randint(0, 4, (12,))

    def step(
        self,
        parts: int = 1,
        clip: Callable[[nn.Module, float], None] = by_number,
        limit: float = LIMIT,
        lr: float = 0.1,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
        **options: object,
    ) -> Program:
        model = copy.deepcopy(self.model)

        def program() -> dict[str, Tensor]:
            steps = optimizer(model.parameters(), lr=lr, **options)
            for x, y in zip(self.x.chunk(parts), self.y.chunk(parts), strict=True):
                (F.cross_entropy(model(x), y) / parts).backward()
            clip(model, limit)
            steps.step()
            return {name: p.detach() for name, p in model.named_parameters()}

        return program


@pytest.fixture(scope="module")
def training() -> Training:
    """Whose norm, in one part and in three, is rounded to different numbers."""

    def read(seed: int, parts: int) -> float:
        numbers = []
        Training(seed).step(parts, lambda model, limit: numbers.append(norm(model).item()))()
        return numbers[0]

    return Training(next(seed for seed in range(100) if read(seed, 1) != read(seed, 3)))


@pytest.mark.parametrize("clip", [by_number, by_root, on_device])
def test_numbers_computed_from_other_roundings_are_the_same_mathematics(clip, training: Training, server: str) -> None:
    verdict = plumbline.compare(training.step(1), training.step(3, clip), server=server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    assert ".item()" in verdict.explain()  # How well the numbers are known is said.
    assert 1e-12 < max(tap.math_resolution for tap in verdict.taps.values()) < 1e-6
    swapped = plumbline.compare(training.step(3, clip), training.step(1), server=server)
    assert swapped.verdict == "TYPE_I", swapped.explain()


def test_adafactor_by_lists_and_one_by_one(training: Training, server: str) -> None:
    adafactor = torch.optim.Adafactor

    def step(parts: int, foreach: bool, lr: float = 0.01) -> Program:
        return training.step(parts, not_at_all, lr=lr, optimizer=adafactor, foreach=foreach)

    verdict = plumbline.compare(step(1, True), step(2, False), server=server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    assert verdict.coverage.opaque == 0
    assert plumbline.compare(step(1, True), step(2, False, lr=0.0101), server=server).verdict != "TYPE_I"


def test_another_limit_is_found_where_both_read_the_same_and_left_open_otherwise(
    training: Training, server: str
) -> None:
    same = plumbline.compare(training.step(1, limit=1.01 * LIMIT), training.step(1), server=server)
    assert (same.verdict, same.grade) == ("TYPE_II", "PROVEN"), same.explain()
    other = plumbline.compare(training.step(1, limit=1.01 * LIMIT), training.step(3), server=server)
    assert other.verdict == "INCONCLUSIVE", other.explain()
    assert ".item()" in other.sentence and "test_numbers.py" in other.sentence


@pytest.mark.parametrize("clip", [not_at_all, logged])
def test_another_constant_is_found_whether_or_not_a_number_was_read_before(
    clip, training: Training, server: str
) -> None:
    verdict = plumbline.compare(training.step(1, clip, lr=0.1), training.step(3, clip, lr=0.10001), server=server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


def test_a_bare_value_behind_a_number_that_was_read_never_accuses(training: Training, server: str) -> None:
    exact = copy.deepcopy(training)
    exact.model.double()
    exact.x = exact.x.double()
    bare = {name: value.clone() for name, value in exact.step(1)().items()}
    verdict = plumbline.compare(training.step(1), bare, server=server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    wrong = plumbline.compare(training.step(1), exact.step(1, limit=0.0107)(), server=server)
    assert wrong.verdict == "INCONCLUSIVE", wrong.explain()


READERS: dict[str, Callable[[Tensor], list[float]]] = {
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: [float(each) for each in x.numpy()],
    "asarray": lambda x: [float(each) for each in np.asarray(x)],
}


def spread(x: Tensor) -> Tensor:
    """A variance that cancels: what numbers computed of its terms lose is no difference of mathematics."""
    return torch.stack([(x * x).mean(), x.mean()])


@pytest.mark.parametrize("reader", READERS)
def test_tensors_that_are_read_whole_are_read(server: str, reader: str) -> None:
    read = READERS[reader]
    x = torch.randn(50, generator=torch.Generator().manual_seed(1)) + 100

    def by_numbers() -> dict[str, Tensor]:
        square, mean = read(spread(x))
        return {"y": (x - 100) * (square - mean * mean)}

    def by_tensors() -> dict[str, Tensor]:
        square, mean = spread(x)
        return {"y": (x - 100) * (square - mean * mean)}

    verdict = plumbline.compare(by_numbers, by_tensors, server)
    assert verdict.verdict == "INCONCLUSIVE" and "Python may have computed" in verdict.sentence, verdict.explain()
    assert not {"tolist", "numpy"} & vars(torch.Tensor).keys(), "torch.Tensor is as it was"


@pytest.mark.parametrize("reader", READERS)
def test_what_is_read_whole_comes_back_as_it_was(server: str, reader: str) -> None:
    read = READERS[reader]
    x = torch.randn(3, generator=torch.Generator().manual_seed(1)) + 3

    def by_numbers() -> dict[str, Tensor]:
        return {"y": x * read(x * x)[0]}

    def by_tensors() -> dict[str, Tensor]:
        return {"y": x * (x * x)[0]}

    verdict = plumbline.compare(by_numbers, by_tensors, server)
    assert verdict.verdict == "TYPE_I", verdict.explain()


def test_a_large_array_is_read_in_part_and_changes_no_bit(server: str) -> None:
    x = torch.randn(300, 40, generator=torch.Generator().manual_seed(1))

    def program() -> dict[str, Tensor]:
        held = (x * 2).numpy()
        return {"y": x / math.sqrt(float(held.var())), "sum": x.sum()}

    plain = program()["y"]
    taken: list[Tensor] = []

    def watched() -> dict[str, Tensor]:
        made = program()
        taken.append(made["y"])
        return made

    verdict = plumbline.compare(watched, program, server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    assert torch.equal(taken[0], plain)


def test_what_numpy_writes_in_place_is_seen(server: str) -> None:
    """Nobody knows how numpy computed it: there is nothing to accuse."""
    w, x = torch.randn(8, 4), torch.randn(16, 8)

    def by_numpy() -> dict[str, Tensor]:
        made = x @ w
        held = made.numpy()
        before = made.sum() + made.amax()  # What numpy only holds is what it was.
        held /= 3
        return {"y": made.tanh(), "before": before}

    def by_tensors() -> dict[str, Tensor]:
        made = x @ w
        return {"y": (made * (1 / 3)).tanh(), "before": made.sum() + made.amax()}

    taken: list[Tensor] = []

    def watched() -> dict[str, Tensor]:
        found = by_numpy()
        taken.append(found["y"])
        return found

    verdict = plumbline.compare(watched, by_tensors, server)
    assert verdict.verdict != "TYPE_II" and verdict.grade != "PROVEN", verdict.explain()
    assert verdict.coverage.opaque == 1, verdict.explain()
    assert torch.equal(taken[0], by_numpy()["y"])
    verdict = plumbline.compare(by_numpy, by_numpy, server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_I", "MATCH"), verdict.explain()


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, W1, W2 = drawn(5, 32, 6), drawn(6, 6, 8) / 2, drawn(7, 8, 4) / 2
Y = torch.randint(0, 4, (32,), generator=torch.Generator().manual_seed(8))

# Numbers near 1 of which roundings leave little, or that pass an infinity on their way.
WIDE: dict[str, Callable[[], Tensor]] = {
    "a floor at a tie": lambda: torch.floor(torch.tensor(0.1) * 10),
    "inside of lgamma": lambda: torch.lgamma(torch.tensor(0.5) * 2),
    "a variance in one pass": lambda: ((X + 1000.0) ** 2).mean() - (X + 1000.0).mean() ** 2,
    "an infinity": lambda: torch.exp(torch.log(torch.zeros(()) * X[0, 0].abs())),
    "bf16": lambda: X.bfloat16().softmax(1).sum(1).mean().float(),
}


def scaled(beside: Callable[[], Tensor], c: float, computed: bool) -> Program:
    """By 1 - c, which is computed or held."""

    def program() -> dict[str, Tensor]:
        by = 1 - torch.tensor(c) if computed else torch.tensor(1 - c)
        h = torch.tanh(X @ W1)
        logits = (h * by) @ W2 if computed else h @ (W2 * by)
        return {"loss": F.cross_entropy(logits, Y) + 0.01 * beside()}

    return program


@pytest.mark.parametrize("beside", WIDE)
def test_a_number_near_an_unrelated_one_is_not_that(server: str, beside: str) -> None:
    wide = WIDE[beside]
    for c in (0.01, -0.01):
        held, computed = scaled(wide, c, False), scaled(wide, c, True)
        for pair in ((held, computed), (computed, held)):
            verdict = plumbline.compare(*pair, server)
            assert verdict.verdict == "TYPE_I", verdict.explain()
    verdict = plumbline.compare(scaled(wide, -0.02, False), scaled(wide, 0, False), server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


def test_a_number_near_a_wide_one_that_it_may_be_decides_nothing(server: str) -> None:
    """It may have been computed in another way, or be a wrong one."""

    def program(by: Callable[[], Tensor]) -> Program:
        return lambda: {"y": torch.exp(X * by())}

    wide = WIDE["a variance in one pass"]
    verdict = plumbline.compare(program(lambda: wide().detach()), program(wide), server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    given = torch.tensor(float(X.double().var(correction=0)) * 1.003)
    verdict = plumbline.compare(program(lambda: given), program(wide), server)
    assert verdict.verdict == "INCONCLUSIVE" and "lies near that" in verdict.sentence, verdict.explain()
    verdict = plumbline.compare(program(lambda: given * 1.5), program(wide), server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


def test_a_range_that_starts_at_a_number_of_a_tensor(server: str) -> None:
    """As a queue that is written in a ring has it, from its first step on; a pointer off by one is found."""

    def run(name: str, reference: str | None, off: int = 0) -> list[plumbline.Verdict]:
        torch.manual_seed(0)
        net = nn.Linear(5, 5)
        net.register_buffer("queue", torch.randn(16, 5))
        net.register_buffer("pointer", torch.tensor(4))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        audit = plumbline.watch(net, optimizer, server, job="ring", run=name, reference=reference, every=1)
        for _ in range(2):
            with audit.step():
                z = net(torch.ones(4, 5))
                (z @ net.queue.t()).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                with torch.no_grad():
                    start = int(net.pointer) + off
                    rows = torch.arange(start, start + 4)
                    if reference:
                        net.queue[rows] = z.detach()
                    else:
                        net.queue.index_copy_(0, rows, z.detach())
                    net.pointer.fill_((start + 4) % 16)
            assert audit.flush()
        verdicts = audit.verdicts()
        audit.close()
        return verdicts

    assert [verdict.verdict for verdict in run("copied", None)] == ["TYPE_I"] * 2
    assert [verdict.verdict for verdict in run("assigned", "copied")] == ["TYPE_I"] * 2
    assert run("off", "copied", 1)[0].verdict == "TYPE_II"
