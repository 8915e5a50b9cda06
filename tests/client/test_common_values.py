"""Two programs of which one takes the other's batch in parts, so that most of their values are one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline

Change = Callable[[Tensor], Tensor]


def same(x: Tensor) -> Tensor:
    return x


def enlarged(x: Tensor) -> Tensor:
    return x * 1.001


class Net(nn.Module):
    """Layers that each row of the batch goes through by itself, attention over its own rows, and a padded one."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.table, self.out, self.norm = nn.Embedding(13, 16), nn.Linear(16, 13), nn.LayerNorm(16)
        self.mix, self.near, self.change = nn.Linear(16, 48), nn.Conv1d(16, 16, 3, padding=1), change

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        q, k, v = (part.unflatten(2, (2, 8)).transpose(1, 2) for part in self.mix(self.norm(x)).chunk(3, 2))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.gelu(self.near(x.transpose(1, 2)).transpose(1, 2))
        return self.out(self.change(x))


def named(sizes: list[int]) -> str:
    return "-".join(map(str, sizes))


def trained(
    server: str, run: str, reference: str | None, sizes: list[int], autocast: bool, change: Change, last: float
) -> list[plumbline.Verdict]:
    """Two steps, the gradients of parts of the batch added up, those of the last part so many times."""
    torch.manual_seed(0)
    model = Net(change)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(1)
    options = {"job": f"common-{autocast}", "run": run, "every": 1, "reference": reference}
    with plumbline.watch(model, optimizer, server, **options) as audit:
        for _ in range(2):
            tokens, wanted = (torch.randint(0, 13, (sum(sizes), 6), generator=draw) for _ in range(2))
            with audit.step():
                for at, (x, y) in enumerate(zip(tokens.split(sizes), wanted.split(sizes), strict=True)):
                    with torch.autocast("cpu", torch.bfloat16, autocast):
                        loss = F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten()) * len(x) / len(tokens)
                    (loss * (last if at == len(sizes) - 1 else 1)).backward()
                optimizer.step()
                optimizer.zero_grad()
            assert audit.flush(120)
        assert not audit.errors()
        return audit.verdicts()


@pytest.mark.parametrize("autocast", [True, False])
def test_parts_of_a_batch_are_one_mathematics(server: str, autocast: bool) -> None:
    for whole in ([8], [4, 4], [2, 5, 1]):
        name = named(whole)
        trained(server, name, None, whole, autocast, same, 1)
        for parts in ([8], [4, 4], [3, 5]):
            run = f"{named(parts)}.of.{name}"
            for verdict in trained(server, run, name, parts, autocast, same, 1):
                assert verdict.verdict == "TYPE_I", (run, verdict.explain())
                assert verdict.math_resolution < 1e-9, (run, verdict.explain())


@pytest.mark.parametrize("autocast", [True, False])
def test_what_parts_do_otherwise_is_found(server: str, autocast: bool) -> None:
    """In what they have in common with the whole batch, and in what they add up."""
    for whole, parts in (([8], [4, 4]), ([4, 4], [8]), ([8], [8]), ([4, 4], [3, 5])):
        name = f"right.{named(parts)}.{named(whole)}"
        trained(server, name, None, whole, autocast, same, 1)
        for change, last in ((enlarged, 1), (same, 1.001)):
            verdict = trained(server, f"{name}.{change.__name__}.{last}", name, parts, autocast, change, last)[0]
            assert (verdict.verdict, verdict.cause) == ("TYPE_II", "MATHEMATICS"), (name, last, verdict.explain())


@torch.library.custom_op("common::squashed", mutates_args=())
def squashed(x: Tensor) -> Tensor:
    return x / (1 + x.abs().sum(-1, keepdim=True))


@squashed.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def by_chunks(order: list[int], taken: list[int], mean: bool) -> Callable[[], dict[str, Tensor]]:
    """An operation that nobody knows, called on chunks in this order; its results are put together in another."""
    draw = torch.Generator().manual_seed(3)
    x, weight, wanted = (torch.randn(*shape, generator=draw) for shape in ((9, 5), (5, 5), (9, 5)))

    def step() -> dict[str, Tensor]:
        chunks, results = (x @ weight).split(3), {}
        for at in order:
            results[at] = squashed(chunks[at])
        errors = (torch.cat([results[at] for at in taken]) @ weight - wanted) ** 2
        return {"loss": errors.mean() if mean else errors.sum(0).sum() / errors.numel()}

    return step


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]])
def test_what_nobody_knows_may_be_called_in_any_order(server: str, order: list[int]) -> None:
    straight = by_chunks([0, 1, 2], [0, 1, 2], mean=True)
    verdict = plumbline.compare(by_chunks(order, [0, 1, 2], mean=False), straight, server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    bug = plumbline.compare(by_chunks(order, [1, 0, 2], mean=False), straight, server)
    assert bug.verdict == "TYPE_II", bug.explain()
