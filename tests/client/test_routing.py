"""Tokens that go to experts: which is chosen is a choice that rounding may turn, and what a program does next, how many
rows an expert takes among it, was written for the choice that was made."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline

WIDTH, TOKENS, EXPERTS = 16, 24, 4
# What each token's choice counts, and which it is: [tokens, chosen].
Route = Callable[["Experts", Tensor], tuple[Tensor, Tensor]]
Dispatch = Callable[["Experts", Route, Tensor], Tensor]


class Experts(nn.Module):
    """Two of them score alike in bf16, and otherwise in exact arithmetic."""

    def __init__(self, router: float) -> None:
        super().__init__()
        rows = router * torch.randn(EXPERTS, WIDTH) / 4
        rows[0] = rows[0].bfloat16().float()
        rows[1] = rows[0] * (1 + 2.0**-12)
        self.router = nn.Parameter(rows)
        self.experts = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH) / 4)


def two_best(model: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
    return F.linear(x, model.router).softmax(-1).topk(2, -1)


def best(model: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
    shares = F.linear(x, model.router).softmax(-1)
    index = shares.argmax(-1, keepdim=True)
    return shares.gather(1, index), index


def largest(model: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
    return F.linear(x, model.router).softmax(-1).max(-1, keepdim=True)


def gathered(model: Experts, route: Route, x: Tensor) -> Tensor:
    """Each token with the weights of its own experts."""
    share, index = route(model, x)
    each = torch.bmm(model.experts[index.flatten()], x.repeat_interleave(index.shape[1], 0)[..., None])[..., 0]
    return (each.view(*index.shape, WIDTH) * share[..., None]).sum(1)


def dense(model: Experts, route: Route, x: Tensor) -> Tensor:
    """All experts, most of them counting nothing."""
    share, index = route(model, x)
    count = torch.zeros(len(x), EXPERTS, dtype=share.dtype).scatter(1, index, share)
    return torch.einsum("bed,be->bd", torch.einsum("bi,eoi->beo", x, model.experts), count)


def looped(model: Experts, route: Route, x: Tensor) -> Tensor:
    """Expert by expert, those of its tokens; some have none."""
    share, index = route(model, x)
    found = torch.zeros_like(x)
    for expert in range(EXPERTS):
        token, place = (index == expert).nonzero(as_tuple=True)
        rows = F.linear(x[token], model.experts[expert]) * share[token, place, None]
        found = found.index_add(0, token, rows.to(found.dtype))
    return found


def sorted_by_expert(model: Experts, route: Route, x: Tensor) -> Tensor:
    share, index = route(model, x)
    order = index.flatten().argsort(stable=True)
    counts = torch.bincount(index.flatten(), minlength=EXPERTS).tolist()
    parts = x.repeat_interleave(index.shape[1], 0)[order].split(counts)
    rows = torch.cat([F.linear(part, model.experts[e]) for e, part in enumerate(parts)])
    return (rows[order.argsort()].view(*index.shape, WIDTH) * share[..., None]).sum(1)


def grouped(model: Experts, route: Route, x: Tensor) -> Tensor:
    """The same in one operation for all experts, as transformers has it: each one's rows end where counts say."""
    share, index = route(model, x)
    chosen = index.flatten()
    order = chosen.argsort()
    ends = torch.histc(chosen.float(), EXPERTS, 0, EXPERTS - 1).int().cumsum(0, dtype=torch.int32)
    rows = F.grouped_mm(x.repeat_interleave(index.shape[1], 0)[order], model.experts.mT, offs=ends)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return (rows[back].view(*index.shape, WIDTH) * share[..., None]).sum(1)


def trained(
    server: str,
    name: str,
    dispatch: Dispatch,
    route: Route,
    autocast: bool,
    router: float = 1,
    parts: int = 1,
    reference: str | None = None,
    last_counts: float = 1,
) -> list[plumbline.Verdict]:
    """`last_counts`: the weight of the last part's mean, which should be 1."""
    torch.manual_seed(7)
    model, batches = Experts(router), torch.randn(3, TOKENS, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    audit = plumbline.watch(
        model, optimizer, server, job="routing", run=name, every=1, reference=reference, keep_trace=True
    )
    for x in batches:
        with audit.step():
            for number, part in enumerate(x.chunk(parts), 1):
                with torch.autocast("cpu", torch.bfloat16, autocast):
                    out = part + dispatch(model, route, part)
                (out.float().square().mean() / parts * (last_counts if number == parts else 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert audit.flush(60)
    audit.close()
    assert not audit.errors()
    return audit.verdicts()


def legal(verdicts: Iterable[plumbline.Verdict]) -> bool:
    return all(verdict.verdict == "TYPE_I" for verdict in verdicts)


def turned(verdicts: Iterable[plumbline.Verdict]) -> bool:
    """Whether rounding turned a choice somewhere, so that a test asks what it says."""
    return any("otherwise than in exact arithmetic" in note for verdict in verdicts for note in verdict.notes)


@pytest.mark.parametrize("route", [two_best, best, largest])
@pytest.mark.parametrize("reference", [gathered, dense])
@pytest.mark.parametrize("dispatch", [looped, sorted_by_expert])
def test_another_way_to_the_same_experts(server: str, route: Route, reference: Dispatch, dispatch: Dispatch) -> None:
    name = f"{route.__name__}-{reference.__name__}-{dispatch.__name__}"
    alone = trained(server, name, reference, route, True)
    assert legal(alone)
    assert turned(alone)
    paired = trained(server, f"{name}-paired", dispatch, route, True, reference=name)
    assert legal(paired), [(one.sentence, one.notes) for one in paired]


@pytest.mark.parametrize("route", [two_best, best])
@pytest.mark.parametrize("dispatch", [looped, sorted_by_expert])
def test_a_router_that_begins_with_zeros_ties_everywhere(server: str, route: Route, dispatch: Dispatch) -> None:
    name = f"zeros-{route.__name__}-{dispatch.__name__}"
    assert legal(trained(server, name, gathered, route, False, router=0))
    assert legal(trained(server, f"{name}-paired", dispatch, route, False, router=0, reference=name))


def marked(model: Experts, route: Route, x: Tensor) -> Tensor:
    """The best of all experts without an index: no choice that a trace tells."""
    del route
    scores = F.linear(x, model.router).softmax(-1)
    best = torch.where(scores == scores.amax(-1, keepdim=True), scores, 0)
    return torch.einsum("bed,be->bd", torch.einsum("bi,eoi->beo", x, model.experts), best.to(x.dtype))


@pytest.mark.parametrize("dispatch", [looped, sorted_by_expert])
def test_counts_of_a_choice_that_exact_arithmetic_makes_otherwise_prove_nothing(
    server: str, dispatch: Dispatch
) -> None:
    name = f"marked-{dispatch.__name__}"
    trained(server, name, marked, best, True)
    paired = trained(server, f"{name}-paired", dispatch, best, True, reference=name)
    assert turned(paired)
    assert not any(verdict.grade == "PROVEN" and verdict.verdict == "TYPE_II" for verdict in paired)


def test_an_expert_may_have_no_tokens(server: str) -> None:
    def first(model: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
        share, _ = best(model, x)
        return share, torch.zeros(len(x), 1, dtype=torch.int64)

    verdicts = trained(server, "none", looped, first, False)
    assert legal(verdicts)
    assert not any("not modelled" in verdict.sentence for verdict in verdicts)


@pytest.mark.parametrize(
    ("of_whole", "of_parts"), [(two_best, two_best), (largest, best), (best, largest)], ids=lambda route: route.__name__
)
def test_parts_of_a_batch_choose_what_the_whole_does(server: str, of_whole: Route, of_parts: Route) -> None:
    name = f"whole-{of_whole.__name__}-{of_parts.__name__}"
    assert turned(trained(server, name, gathered, of_whole, True))
    parts = trained(server, f"{name}-parts", sorted_by_expert, of_parts, True, parts=2, reference=name)
    assert not any(verdict.verdict == "TYPE_II" for verdict in parts), [one.sentence for one in parts]


@pytest.mark.parametrize("dispatch", [sorted_by_expert, grouped])
def test_parts_of_a_batch_that_count_wrongly_are_found(server: str, dispatch: Dispatch) -> None:
    """Though how many tokens of each part an expert takes has no counterpart in the whole batch."""

    def straight(model: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.linear(x, model.router * torch.tensor([[1.0], [1.5], [1.0], [1.0]])).softmax(-1).topk(2, -1)

    name = f"counts-{dispatch.__name__}"
    assert legal(trained(server, name, dispatch, straight, False))
    right = trained(server, f"{name}-right", dispatch, straight, False, parts=2, reference=name)
    assert legal(right), [one.sentence for one in right]
    wrong = trained(server, f"{name}-wrong", dispatch, straight, False, parts=2, reference=name, last_counts=1.05)
    assert all((one.verdict, one.grade) == ("TYPE_II", "PROVEN") for one in wrong), [one.sentence for one in wrong]


@pytest.mark.parametrize("looks", [False, True])
def test_a_choice_that_nothing_comes_of_is_none(server: str, looks: bool) -> None:
    """Of equals one program takes the first, the other the last. A metric looks at the first in both."""

    def last(model: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
        shares = F.linear(x, model.router).softmax(-1)
        if looks:
            shares.argmax(-1)
        index = shares.sort(dim=-1, stable=True)[1][:, -1:]
        return shares.gather(1, index), index

    trained(server, f"first-{looks}", gathered, best, True)
    paired = trained(server, f"last-{looks}", gathered, last, True, reference=f"first-{looks}")
    assert paired[0].verdict == "TYPE_I", paired[0].explain()
    assert not any(verdict.verdict == "TYPE_II" for verdict in paired), [one.sentence for one in paired]


def test_a_choice_of_one_is_no_part_of_another_choice(server: str) -> None:
    """Its number is among those of any choice of many."""

    def scaled(pick: Callable[[Tensor], Tensor]) -> Route:
        def route(model: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
            scores = F.linear(x, model.router)
            share, index = best(model, x)
            return share * (1 + 0.1 * scores[0, pick(scores[0])]), index

        return route

    trained(server, "one", gathered, scaled(lambda row: row.argmax()), True)
    last = scaled(lambda row: row.sort(stable=True)[1][-1])
    paired = trained(server, "one-of-all", gathered, last, True, reference="one")
    assert not any(verdict.verdict == "TYPE_II" for verdict in paired), [one.sentence for one in paired]


def test_an_expert_with_a_token_too_few_is_found(server: str) -> None:
    def short(model: Experts, route: Route, x: Tensor) -> Tensor:
        share, index = route(model, x)
        keep = torch.ones_like(share)
        keep[3, 0] = 0
        return gathered(model, lambda *_: (share * keep, index), x)

    trained(server, "full", dense, two_best, True)
    assert all(one.verdict == "TYPE_II" for one in trained(server, "short", short, two_best, True, reference="full"))


def scattered(z: Tensor, index: Tensor) -> Tensor:
    return torch.zeros_like(z).scatter(1, index, 1.0)


def put(z: Tensor, index: Tensor) -> Tensor:
    mask = torch.zeros_like(z)
    mask[torch.arange(len(z))[:, None], index] = 1.0
    return mask


@pytest.mark.parametrize("mask", [scattered, put])
def test_places_that_a_choice_marks_are_counted(server: str, mask: Callable[[Tensor, Tensor], Tensor]) -> None:
    """How often an index names a place is a whole number, however the index was chosen."""
    draw = torch.Generator().manual_seed(5)
    x, w = torch.randn(8, 6, generator=draw), torch.randn(6, 6, generator=draw) / 2

    def program(pick: Callable[[Tensor], Tensor], mark: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Tensor]:
        z = x @ w
        return {"loss": (z * mark(z, pick(z))).exp().mean()}

    def of_size(z: Tensor) -> Tensor:
        return z.abs().topk(2, 1)[1]

    def one_hot(z: Tensor, index: Tensor) -> Tensor:
        return F.one_hot(index, 6).sum(1)

    verdict = plumbline.compare(lambda: program(of_size, mask), lambda: program(of_size, one_hot), server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    other = lambda: program(lambda z: z.topk(2, 1)[1], mask)  # noqa: E731
    verdict = plumbline.compare(other, lambda: program(of_size, mask), server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


def test_an_indexed_assignment_in_backward_is_no_decision(server: str) -> None:
    draw = torch.Generator().manual_seed(5)
    x, y = torch.randn(8, 12, generator=draw), torch.randint(0, 5, (8,), generator=draw)
    weight = torch.randn(12, 5, generator=draw) / 3

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z, scale):
            ctx.save_for_backward(z.softmax(-1))
            ctx.scale = scale
            return F.cross_entropy(z, y)

        @staticmethod
        def backward(ctx, gradient):
            p = ctx.saved_tensors[0].clone()
            p[torch.arange(len(y)), y] -= 1
            return gradient * p * (ctx.scale / len(y)), None

    def program(loss: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        w = weight.clone().requires_grad_()
        loss(x @ w).backward()
        return {"w": w.grad}

    plain = lambda: program(lambda z: F.cross_entropy(z, y))  # noqa: E731
    verdict = plumbline.compare(lambda: program(lambda z: Loss.apply(z, 1.0)), plain, server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    verdict = plumbline.compare(lambda: program(lambda z: Loss.apply(z, 1.5)), plain, server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()
