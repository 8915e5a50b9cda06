"""Draws that a program made twice from one state of its generator are one number: no independent ones stand for them,
and what is computed again is no other draw."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import plumbline

Taps = dict[str, Tensor]


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, Y, W = drawn(1, 16, 6), drawn(2, 16, 6), drawn(3, 6, 6)


def two_workers(first: int, second: int) -> Taps:
    """Each adds its own noise."""
    torch.manual_seed(first)
    a = torch.rand(16, 6)
    torch.manual_seed(second)
    return {"y": (X + a) * (Y + torch.rand(16, 6))}


def two_masks(seed: int, again: bool) -> Taps:
    torch.manual_seed(seed)
    state = torch.get_rng_state()
    a = F.dropout(X @ W, 0.5)
    if again:
        torch.set_rng_state(state)
    return {"y": a - F.dropout(Y @ W, 0.5)}


def computed_again(seed: int, kept: bool, p: float = 0.5) -> Taps:
    """A region that is kept, or computed again in backward."""
    torch.manual_seed(seed)
    w, v = W.clone().requires_grad_(), W.t().clone().requires_grad_()

    def region(x: Tensor) -> Tensor:
        return F.dropout((x @ w).tanh(), p)

    h = region(X) if kept else checkpoint(region, X, use_reentrant=False)
    (F.dropout(h @ v, 0.3)).square().mean().backward()
    return {"w": w.grad, "v": v.grad}


@pytest.mark.parametrize("turned", [False, True])
def test_one_seed_for_two_workers_is_found(server: str, turned: bool) -> None:
    programs = [lambda: two_workers(7, 7), lambda: two_workers(7, 8)]
    verdict = plumbline.compare(*(programs[::-1] if turned else programs), server)
    assert verdict.verdict == "TYPE_II" and verdict.suspect.op == "aten::rand", verdict.explain()


@pytest.mark.parametrize("turned", [False, True])
def test_a_mask_that_is_drawn_again_is_found(server: str, turned: bool) -> None:
    programs = [lambda: two_masks(7, True), lambda: two_masks(8, False)]
    verdict = plumbline.compare(*(programs[::-1] if turned else programs), server)
    assert verdict.verdict == "TYPE_II", verdict.explain()


def test_other_seeds_are_no_other_program(server: str) -> None:
    for target, reference in (((7, 7), (9, 9)), ((7, 8), (9, 10)), ((7, 8), (8, 9))):
        verdict = plumbline.compare(
            lambda seeds=target: two_workers(*seeds), lambda seeds=reference: two_workers(*seeds), server
        )
        assert verdict.verdict == "TYPE_I", verdict.explain()


@pytest.mark.parametrize("kept", [False, True])
def test_what_is_computed_again_is_one_draw(server: str, kept: bool) -> None:
    verdict = plumbline.compare(lambda: computed_again(7, kept), lambda: computed_again(8, not kept), server)
    assert verdict.verdict == "TYPE_I", verdict.explain()


@pytest.mark.parametrize("kept", [False, True])
def test_another_probability_shows_all_the_same(server: str, kept: bool) -> None:
    verdict = plumbline.compare(lambda: computed_again(7, kept), lambda: computed_again(8, not kept, 0.4), server)
    assert verdict.verdict == "TYPE_II", verdict.explain()
