"""Derivatives that ask whether they are watched: they run unwatched, to the bit, and are in the trace nevertheless."""

from __future__ import annotations

import pytest
import torch
from interpreter import Interpreter, bits
from test_sweep import Program, inputs, run, watched
from torch import Tensor, nn

import plumbline
from plumbline import daemon
from plumbline.encode import encode_step

HIDDEN: dict[str, Program] = {
    "prod along a dimension": lambda x, y, i: x.prod(1),
    "prod that keeps the dimension": lambda x, y, i: (x * y).prod(-2, keepdim=True),
    "prod of all": lambda x, y, i: (x * 0.5).prod(),
    "prod of rows with a zero": lambda x, y, i: (x * (x != x[0, 1])).prod(1),
    "prod with a zero": lambda x, y, i: (x * (x != x[0, 1])).prod(),
    "prod beside one without a gradient": lambda x, y, i: x.prod(1) * y.detach().prod(1),
    "prod of columns": lambda x, y, i: x.t().prod(1),
    "cumprod": lambda x, y, i: x.cumprod(1),
    "cumprod with zeros": lambda x, y, i: (x * (x > -1)).cumprod(1),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_derivatives_that_ask_whether_they_are_watched(name: str) -> None:
    """They run unwatched, and are in the trace nevertheless."""
    program = HIDDEN[name]
    for seed in range(5):
        expected = run(program, *inputs(torch.float32, seed))
        found, capture = watched(program, inputs(torch.float32, seed))
        assert capture.failure is None
        for mine, theirs in zip(found, expected, strict=True):
            assert torch.equal(bits(mine), bits(theirs))
        Interpreter(encode_step(capture.records, 0))
        names = [record[1].name for record in capture.records if record[0] == "op"]
        assert "plumbline::out_of_sight" not in names


class Heights(nn.Module):
    """As light that comes through a stack of layers is worked out: by a running product, or by logarithms."""

    def __init__(self, by_logarithms: bool, bug: bool) -> None:
        super().__init__()
        self.layer, self.by_logarithms, self.bug = nn.Linear(6, 5), by_logarithms, bug

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.sigmoid(self.layer(x)) + 0.01
        if self.by_logarithms:
            return kept.log().sum(1).exp()
        return kept.prod(1) if not self.bug else kept[:, 1:].prod(1)


@pytest.mark.parametrize("bug", [False, True])
def test_a_product_is_compared_with_another_form_of_it(bug: bool) -> None:
    def trained(server: str, run: str, by_logarithms: bool, **options: str) -> list[plumbline.Verdict]:
        torch.manual_seed(0)
        model = Heights(by_logarithms, bug)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with plumbline.watch(model, optimizer, server, job=f"heights-{bug}", run=run, every=1, **options) as audit:
            for _ in range(2):
                with audit.step():
                    optimizer.zero_grad()
                    model(torch.randn(7, 6)).square().mean().backward()
                    optimizer.step()
                assert audit.flush()
            assert not audit.errors()
            return audit.verdicts()

    with daemon.private() as server:
        assert [v.verdict for v in trained(server, "logarithms", True)] == ["TYPE_I"] * 2
        verdicts = trained(server, "product", False, reference="logarithms")
    assert [verdict.verdict for verdict in verdicts] == ["TYPE_II" if bug else "TYPE_I"] * 2
    assert not verdicts[0].coverage.opaque
