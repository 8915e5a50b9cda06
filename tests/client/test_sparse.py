"""Sparse tensors in coordinates: gradients of embeddings, what optimizers make of them, products with matrices."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline
from plumbline import daemon


@pytest.fixture(scope="module")
def server():
    with daemon.private() as address:
        yield address


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
