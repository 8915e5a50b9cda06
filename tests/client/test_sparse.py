"""Sparse tensors in coordinates: gradients of embeddings, what optimizers make of them, products with matrices."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda weights: torch.optim.SparseAdam(weights, 1e-2),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, 1e-2),
    "descent": lambda weights: torch.optim.SGD(weights, 1e-2),
}


def steps(server: str, name: str, run: str, sparse: bool, factor: float = 1.0, reference: str | None = None) -> list:
    """Two steps of an embedding some of whose rows come twice."""
    torch.manual_seed(0)
    words = nn.Embedding(10, 4, sparse=sparse)
    optimizer = OPTIMIZERS[name](list(words.parameters()))
    options = {"keep_trace": True} if reference is None else {"reference": reference}
    with plumbline.watch(words, optimizer, server, job=name, run=run, every=1, on_type_ii="ignore", **options) as audit:
        for step in range(2):
            index = torch.tensor([[1, 3, 1], [7, 3, step]])
            with audit.step():
                (words(index).square().sum() * factor).backward()
                optimizer.step()
                optimizer.zero_grad()
        assert audit.flush(), audit.errors()
        return audit.verdicts()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sparse_gradients_are_audited_whole(server: str, name: str) -> None:
    for verdict in steps(server, name, "healthy", sparse=True):
        assert verdict.verdict == "TYPE_I", verdict.explain()
        assert not verdict.coverage.opaque, verdict.coverage.opaque_names
        assert any("update" in tap for tap in verdict.taps), verdict.explain()
    for verdict in steps(server, name, "twin", sparse=True, reference="healthy"):
        assert verdict.verdict == "TYPE_I", verdict.explain()
    wrong = steps(server, name, "wrong", sparse=True, factor=1.001, reference="healthy")[0]
    assert wrong.verdict == "TYPE_II", wrong.explain()


def test_a_sparse_gradient_is_what_a_dense_one_is(server: str) -> None:
    steps(server, "descent", "dense", sparse=False)
    for verdict in steps(server, "descent", "sparse", sparse=True, reference="dense"):
        assert verdict.verdict == "TYPE_I", verdict.explain()


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


GRAPH = torch.where(drawn(6, 6) > 0.3, drawn(6, 6), 0.0).to_sparse_coo()


def products(kind: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Tensor]:
    x = drawn(6, 3).requires_grad_()
    y = torch.tanh(kind(GRAPH, x))
    y.square().sum().backward()
    return {"y": y.detach(), "gradient": x.grad}


PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mm": lambda graph, x: torch.sparse.mm(graph, x),
    "matmul": lambda graph, x: graph @ x,
    "addmm": lambda graph, x: torch.sparse.addmm(x, graph, x, beta=0.5, alpha=2.0),
    "dense": lambda graph, x: graph.to_dense() @ x,
    "scaled": lambda graph, x: torch.sparse.mm(graph * 0.3, x),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("capture", ["leaves", "outputs"])
def test_products(server: str, name: str, capture: str) -> None:
    kind = PRODUCTS[name]
    alone = plumbline.compare(lambda: products(kind), None, server, capture=capture)
    assert alone.verdict == "TYPE_I" and not alone.coverage.opaque, alone.explain()
    by_hand = {
        "mm": lambda graph, x: graph.to_dense() @ x,
        "matmul": lambda graph, x: F.linear(x.T, graph.to_dense()).T,
        "addmm": lambda graph, x: 0.5 * x + 2.0 * (graph.to_dense() @ x),
        "dense": lambda graph, x: torch.sparse.mm(graph, x),
        "scaled": lambda graph, x: 0.3 * torch.sparse.mm(graph, x),
    }[name]
    pair = plumbline.compare(lambda: products(kind), lambda: products(by_hand), server, capture=capture)
    assert pair.verdict == "TYPE_I", pair.explain()
    wrong = plumbline.compare(
        lambda: products(lambda graph, x: kind(graph, x) * 1.001), lambda: products(by_hand), server, capture=capture
    )
    assert wrong.verdict == "TYPE_II", wrong.explain()


BAGS: dict[str, dict] = {
    "sum": {"mode": "sum", "sparse": True},
    "mean": {"mode": "mean", "sparse": True},
    "padded": {"mode": "mean", "sparse": True, "padding_idx": 3},
    "to the last": {"mode": "sum", "sparse": True, "include_last_offset": True},
    "weighed": {"mode": "sum", "sparse": True},
    "rare words first": {"mode": "mean", "scale_grad_by_freq": True},
    "rare and weighed": {"mode": "sum", "scale_grad_by_freq": True},
}


def bagged(name: str, options: dict, factor: float = 1.0) -> dict[str, Tensor]:
    """What a step leaves of a table whose words come once, twice and never."""
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(10, 4, **options)
    words, begin = torch.tensor([1, 3, 1, 7, 3, 9, 2, 3]), torch.tensor([0, 3, 3, 5, 8])
    begin = begin if options.get("include_last_offset") else begin[:-1]
    weights = drawn(8).requires_grad_() if name.endswith("weighed") else None
    optimizer = torch.optim.SGD(bag.parameters(), 0.1)
    loss = torch.tanh(bag(words, begin, per_sample_weights=weights)).sum() * factor
    loss.backward()
    optimizer.step()
    taps = {"loss": loss.detach(), "table": bag.weight.detach()}
    return taps if weights is None else {**taps, "weights": weights.grad}


@pytest.mark.parametrize("name", BAGS)
@pytest.mark.parametrize("capture", ["leaves", "outputs"])
def test_gradients_of_bags(server: str, name: str, capture: str) -> None:
    options = BAGS[name]
    alone = plumbline.compare(lambda: bagged(name, options), None, server, capture=capture)
    assert alone.verdict == "TYPE_I" and not alone.coverage.opaque, alone.explain()
    same = plumbline.compare(lambda: bagged(name, options), lambda: bagged(name, options), server, capture=capture)
    assert same.grade == "MATCH", same.explain()
    wrong = plumbline.compare(
        lambda: bagged(name, options, 1.001), lambda: bagged(name, options), server, capture=capture
    )
    assert wrong.verdict == "TYPE_II" and not wrong.coverage.opaque, wrong.explain()


@pytest.mark.parametrize("name", [name for name, options in BAGS.items() if options.get("sparse")])
def test_a_sparse_gradient_of_bags_is_what_a_dense_one_is(server: str, name: str) -> None:
    dense = {**BAGS[name], "sparse": False}
    verdict = plumbline.compare(lambda: bagged(name, BAGS[name]), lambda: bagged(name, dense), server)
    assert verdict.verdict == "TYPE_I", verdict.explain()


def test_a_gradient_by_frequency_is_the_other_divided_by_how_often_a_word_comes(server: str) -> None:
    def by_hand() -> dict[str, Tensor]:
        torch.manual_seed(0)
        bag = nn.EmbeddingBag(10, 4, mode="mean")
        words, begin = torch.tensor([1, 3, 1, 7, 3, 9, 2, 3]), torch.tensor([0, 3, 3, 5])
        loss = torch.tanh(bag(words, begin)).sum()
        loss.backward()
        often = torch.bincount(words, minlength=10).clamp(min=1)[:, None]
        return {"loss": loss.detach(), "table": bag.weight.detach() - 0.1 * (bag.weight.grad / often)}

    name = "rare words first"
    same = plumbline.compare(lambda: bagged(name, BAGS[name]), by_hand, server)
    assert same.verdict == "TYPE_I", same.explain()
    wrong = plumbline.compare(lambda: bagged(name, {"mode": "mean"}), by_hand, server)
    assert wrong.verdict == "TYPE_II", wrong.explain()


def twice(sparse: bool, factor: float = 1.0, times: int = 1) -> dict[str, Tensor]:
    """A table that a loss takes from twice, and whose gradient adds up over several backwards."""
    torch.manual_seed(0)
    words = nn.Embedding(12, 4, sparse=sparse)
    for part in range(times):
        first, second = torch.tensor([[1, 3, 1], [7, 3, part]]), torch.tensor([3, 1, 9, 0, 11, 3])
        near, far = words(first), words(second)
        (torch.tanh(near).sum() + factor * (far.square() * near.reshape(6, 4)).sum()).backward()
    torch.optim.SGD(words.parameters(), 0.1).step()
    return {"table": words.weight.detach()}


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("capture", ["leaves", "outputs"])
def test_sums_of_sparse_gradients(server: str, times: int, capture: str) -> None:
    """Entries of one place meet in some orders, and in others they do not."""

    def program(sparse: bool, factor: float = 1.0) -> Callable[[], dict[str, Tensor]]:
        return lambda: twice(sparse, factor, times)

    alone = plumbline.compare(program(True), None, server, capture=capture)
    assert alone.verdict == "TYPE_I" and not alone.coverage.opaque, alone.explain()
    pair = plumbline.compare(program(True), program(False), server, capture=capture)
    assert pair.verdict == "TYPE_I" and not pair.coverage.opaque, pair.explain()
    wrong = plumbline.compare(program(True, 1.001), program(False), server, capture=capture)
    assert wrong.verdict == "TYPE_II", wrong.explain()


SUMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "added": lambda x, y: x + y,
    "scaled": lambda x, y: torch.add(x, y, alpha=0.3),
    "in place": lambda x, y: x.clone().add_(y, alpha=-2),
    "transposed": lambda x, y: x.coalesce() + (y.t() * 0.5).t(),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_sparse_matrices(server: str, name: str) -> None:
    x, other = drawn(6, 3), torch.where(drawn(5, 6)[:, :1] > 0, drawn(5, 6), 0.0)
    more = torch.sparse_coo_tensor(torch.tensor([[5, 0, 2, 0, 5], [1, 0, 2, 0, 1]]), other[:, 0] + 1, (6, 6))

    def program(dense: bool, factor: float = 1.0) -> Callable[[], dict[str, Tensor]]:
        def run() -> dict[str, Tensor]:
            if dense:
                factors = {"scaled": 0.3, "in place": -2, "transposed": 0.5}
                total = GRAPH.to_dense() + factors.get(name, 1) * more.to_dense()
            else:
                total = SUMS[name](GRAPH, more)
            return {"y": (total @ x) * factor}

        return run

    pair = plumbline.compare(program(False), program(True), server)
    assert pair.verdict == "TYPE_I" and not pair.coverage.opaque, pair.explain()
    wrong = plumbline.compare(program(False, 1.001), program(True), server)
    assert wrong.verdict == "TYPE_II", wrong.explain()
