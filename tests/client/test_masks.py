"""Masks of large numbers. Beyond 2^64 one that is added to a score stands for infinity, in exact arithmetic too: bugs
beside it are found, and rows that are masked all over are alike in all programs."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import plumbline

LEAST = torch.finfo(torch.float32).min
KEPT = torch.ones(4, 4).tril()


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def masked(scores: Tensor, kept: Tensor, how: str, by: float) -> Tensor:
    if how == "added":
        return scores + torch.zeros(4, 4, dtype=scores.dtype).masked_fill(kept == 0, by)
    if how == "subtracted":
        return scores - (1 - kept) * -by
    if how == "biased":
        return scores + (0.5 + (1 - kept) * by)
    return scores.masked_fill(kept == 0, by)


def attention(part: int, how: str, by: float = LEAST, factor: float = 1.0) -> dict[str, Tensor]:
    """Its first row has no keys: it attends to all of them alike."""
    kept = KEPT.clone()
    kept[0] = 0
    scores = masked(drawn(1, 4, 5) @ drawn(2, 4, 5).mT, kept, how, by)
    return {"loss": (scores.softmax(-1) @ (factor * drawn(3, 4, 5)))[:part].square().mean()}


@pytest.mark.parametrize("how", ["added", "subtracted", "biased"])
def test_rows_without_keys_are_alike(server: str, how: str) -> None:
    for reference in (lambda: attention(4, "filled"), lambda: attention(4, how, -1e30)):
        verdict = plumbline.compare(lambda: attention(4, how), reference, server)
        assert verdict.verdict == "TYPE_I", verdict.explain()
    for target in (lambda: attention(3, how), lambda: attention(2, how), lambda: attention(4, how, factor=1.01)):
        verdict = plumbline.compare(target, lambda: attention(4, how), server)
        assert verdict.verdict == "TYPE_II", verdict.explain()


def test_what_a_replay_does_not_know_acquits_nobody(server: str) -> None:
    """Numbers that leave something of scores in exact arithmetic, and nothing in fp32."""
    for part in (2, 3):
        verdict = plumbline.compare(
            lambda part=part: attention(part, "added", -1e12), lambda: attention(4, "added", -1e12), server
        )
        assert verdict.verdict in ("INCONCLUSIVE", "TYPE_II"), verdict.explain()


USES: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda z: z.softmax(-1),
    "two layers": lambda z: masked(z.softmax(-1) @ drawn(7, 4, 4), KEPT, "added", LEAST).softmax(-1),
    "largest": lambda z: z.amax(-1, keepdim=True).expand(4, 4),
    "sigmoid": torch.sigmoid,
}


def beside(use: str, how: str, by: float, factor: float) -> dict[str, Tensor]:
    scores = drawn(4, 4, 4).requires_grad_()
    z = USES[use](masked((drawn(5, 4, 4) @ scores).tanh(), KEPT, how, by))
    loss = (z @ (factor * drawn(6, 4, 3))).square().mean()
    loss.backward()
    assert scores.grad is not None
    return {"loss": loss.detach(), "grad:scores": scores.grad}


@pytest.mark.parametrize("by", [-1e9, -1e12, -1e30, LEAST])
@pytest.mark.parametrize("use", USES)
def test_bugs_beside_a_mask_are_found(server: str, use: str, by: float) -> None:
    for how in ("added", "subtracted"):
        for factor, expected in ((1.0, "TYPE_I"), (1.01, "TYPE_II")):
            verdict = plumbline.compare(
                lambda how=how, factor=factor: beside(use, how, by, factor),
                lambda: beside(use, "filled", by, 1),
                server,
            )
            assert verdict.verdict == expected, (how, factor, verdict.explain())


KEPT_OF_ROWS = [5, 3]


def by_loops() -> dict[str, Tensor]:
    weight = drawn(9, 3).requires_grad_()
    scores = drawn(8, 2, 5, 3) @ weight
    loss = sum(scores[i, j:n].logsumexp(0) - scores[i, j] for i, n in enumerate(KEPT_OF_ROWS) for j in range(n))
    assert isinstance(loss, Tensor)
    loss.backward()
    assert weight.grad is not None
    return {"loss": loss.detach(), "grad:weight": weight.grad}


def by_padding(by: float, factor: float) -> dict[str, Tensor]:
    """Rows of padding are masked all over, and left out in the end."""
    weight = drawn(9, 3).requires_grad_()
    scores = drawn(8, 2, 5, 3) @ weight
    read = torch.arange(5)[None] < torch.tensor(KEPT_OF_ROWS)[:, None]
    kept = (torch.ones(5, 5, dtype=torch.bool).triu() & read[:, None]).float()
    rows = (scores[:, None] + (1 - kept) * by).logsumexp(2) - scores
    loss = factor * (rows * read).sum()
    loss.backward()
    assert weight.grad is not None
    return {"loss": loss.detach(), "grad:weight": weight.grad}


@pytest.mark.parametrize(("factor", "expected"), [(1.0, "TYPE_I"), (1.01, "TYPE_II")])
@pytest.mark.parametrize("by", [-1e9, -1e30, LEAST])
def test_rows_that_nobody_reads_hide_nothing(server: str, by: float, factor: float, expected: str) -> None:
    for pair in ((lambda: by_padding(by, factor), by_loops), (by_loops, lambda: by_padding(by, factor))):
        verdict = plumbline.compare(*pair, server)
        assert verdict.verdict == expected, verdict.explain()


def alignment(scores: Tensor, labels: list[int], by: float, lost: int = 0) -> Tensor:
    """Connectionist temporal classification; `by`: of states that are not reached."""
    states = torch.tensor([0, *(state for label in labels for state in (label, 0))])
    skips = torch.tensor([i > 1 and states[i] != 0 and states[i] != states[i - 2] for i in range(len(states))])
    never = torch.full((1,), by)
    alpha = torch.cat([scores[0, states[:2]], never.expand(len(states) - 2)])
    for at in range(1, len(scores) - lost):
        once = torch.logaddexp(alpha, torch.cat([never, alpha[:-1]]))
        twice = torch.cat([never, never, alpha[:-2]]).masked_fill(~skips, by)
        alpha = torch.logaddexp(once, twice) + scores[at, states]
    return -torch.logaddexp(alpha[-1], alpha[-2])


@pytest.mark.parametrize("by", [-1e4, -1e9, -1e30])
def test_recursions_that_begin_with_what_is_not_reached(server: str, by: float) -> None:
    labels = [1, 2, 2]

    def program(loss_of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        x = drawn(10, 6, 5).requires_grad_()
        loss = loss_of(x.log_softmax(-1))
        loss.backward()
        assert x.grad is not None
        return {"loss": loss.detach(), "grad:x": x.grad}

    def of_torch() -> dict[str, Tensor]:
        return program(lambda s: F.ctc_loss(s[:, None], torch.tensor([labels]), (6,), (3,), reduction="sum"))

    for lost, expected in ((0, "TYPE_I"), (1, "TYPE_II")):

        def by_hand(lost: int = lost) -> dict[str, Tensor]:
            return program(lambda s: alignment(s, labels, by, lost))

        for pair in ((by_hand, of_torch), (of_torch, by_hand)):
            verdict = plumbline.compare(*pair, server)
            assert verdict.verdict == expected, verdict.explain()


@pytest.mark.parametrize("offset", [9e16, 1e20, 1e30])
def test_quantities_that_cancel_accuse_nobody(server: str, offset: float) -> None:
    """No format holds what is left of them, and exact arithmetic does."""

    def energies(offset: float) -> dict[str, Tensor]:
        p = drawn(11, 4).requires_grad_()
        loss = ((p * p / 3 + offset) - (drawn(12, 4).square() / 3 + offset)).tanh().sum()
        loss.backward()
        assert p.grad is not None
        return {"loss": loss.detach(), "grad:p": p.grad}

    for pair in ((lambda: energies(offset), lambda: energies(0.0)), (lambda: energies(0.0), lambda: energies(offset))):
        verdict = plumbline.compare(*pair, server)
        assert verdict.verdict == "INCONCLUSIVE", verdict.explain()
