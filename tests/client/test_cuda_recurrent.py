"""Recurrent cells and layers of CUDA builds, dispatched on the CPU by kernels of the tests: told by formulas."""

from collections.abc import Callable, Iterator

import cuda_recurrent
import pytest
import torch
from cuda_kernels import on_the_cpu, wrong
from torch import Tensor, nn

import plumbline

aten = torch.ops.aten
Taps = dict[str, Tensor]
MODES = {"relu": 0, "tanh": 1, "lstm": 2, "gru": 3}


@pytest.fixture(autouse=True, scope="module")
def kernels() -> Iterator[None]:
    with on_the_cpu(cuda_recurrent.KERNELS):
        yield


def module(kind: str, **options: object) -> nn.RNNBase:
    torch.manual_seed(6)
    made = {"lstm": nn.LSTM, "gru": nn.GRU}.get(kind)
    return made(5, 7, **options) if made else nn.RNN(5, 7, nonlinearity=kind, **options)


def layers(kind: str, fused: bool, dtype: torch.dtype, **options: object) -> Callable[[], Taps]:
    def run() -> Taps:
        rnn = module(kind, **options)
        x = torch.randn(4, 6, 5).to(dtype).requires_grad_()
        directions = rnn.num_layers * (2 if rnn.bidirectional else 1)
        batch, projected = 4 if rnn.batch_first else 6, rnn.proj_size
        h = (torch.randn(directions, batch, projected or 7) / 2).to(dtype).requires_grad_()
        c = (torch.randn(directions, batch, 7) / 2).to(dtype).requires_grad_() if kind == "lstm" else None
        weights = [w.detach().to(dtype).requires_grad_() for w in rnn.parameters()]
        stride = len(weights) // directions
        if fused:
            out, state, cell, *_ = aten._cudnn_rnn(
                x, weights, stride, None, h, c, MODES[kind], 7, projected, rnn.num_layers, rnn.batch_first, 0.0, True,
                rnn.bidirectional, [], None,
            )  # fmt: skip
        else:
            states = cuda_recurrent._layers(
                x, weights, h, c, stride, MODES[kind], rnn.num_layers, rnn.batch_first, rnn.bidirectional
            )
            out, state, cell = states
        loss = out.float().square().mean() + state.float().sum() / 50
        if kind == "lstm":
            loss = loss + cell.float().square().mean()
        loss.backward()
        named = {f"w{i}": w.grad for i, w in enumerate(weights)} | {"x": x.grad, "h": h.grad}
        return {"loss": loss} | named | ({"c": c.grad} if c is not None else {})

    return run


FORMS = [
    ("lstm", {"num_layers": 2, "bidirectional": True}),
    ("lstm", {"bias": False, "batch_first": True}),
    ("lstm", {"proj_size": 3, "num_layers": 2}),
    ("gru", {"num_layers": 2}),
    ("tanh", {"bidirectional": True}),
    ("relu", {}),
]


@pytest.mark.parametrize(("kind", "options"), FORMS)
def test_layers_of_cudnn(server: str, kind: str, options: dict[str, object]) -> None:
    target, reference = (layers(kind, fused, torch.float32, **options) for fused in (True, False))
    verdict = plumbline.compare(target, reference, server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
    assert verdict.math_resolution < 1e-9
    faults = {"lstm": "gate", "gru": "reset"}
    for name in ("state", faults.get(kind, "state")):
        with wrong(name, 1.001):
            verdict = plumbline.compare(target, None, server, capture="outputs", profile="cuda-sm90")
        assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
        backward = "_backward" if name == "state" else ""
        assert verdict.suspect is not None and verdict.suspect.op == f"aten::_cudnn_rnn{backward}.default"


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_packed_sequences(server: str, kind: str) -> None:
    sizes = [5, 5, 3, 2]

    def program(fused: bool) -> Callable[[], Taps]:
        def run() -> Taps:
            weights = list(module(kind, num_layers=2, bidirectional=True).parameters())
            x, h = torch.randn(sum(sizes), 5).requires_grad_(), (torch.randn(4, 5, 7) / 2).requires_grad_()
            c = (torch.randn(4, 5, 7) / 2).requires_grad_() if kind == "lstm" else None
            mode = MODES[kind]
            if fused:
                made = aten._cudnn_rnn(
                    x, weights, 4, None, h, c, mode, 7, 0, 2, False, 0.0, True, True, sizes, None
                )  # fmt: skip
            else:
                made = cuda_recurrent._packed(x, weights, h, c, 4, mode, 2, True, sizes)
            loss = made[0].square().mean() + made[1].sum() / 50 + (made[2].square().mean() if c is not None else 0)
            loss.backward()
            named = {f"w{i}": w.grad for i, w in enumerate(weights)} | {"x": x.grad, "h": h.grad}
            return {"loss": loss} | named | ({"c": c.grad} if c is not None else {})

        return run

    verdict = plumbline.compare(program(True), program(False), server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
    assert verdict.math_resolution < 1e-9
    for name in ("state", "gate" if kind == "lstm" else "reset"):
        with wrong(name, 1.001):
            verdict = plumbline.compare(program(True), None, server, capture="outputs", profile="cuda-sm90")
        assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()


def test_layers_of_cudnn_in_16_bits(server: str) -> None:
    target = layers("lstm", True, torch.float16)
    verdict = plumbline.compare(target, None, server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
    with wrong("gate", 1.2):
        verdict = plumbline.compare(target, None, server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()


def test_layers_may_multiply_in_tf32(server: str) -> None:
    """As PyTorch lets them by default, and products of matrices not."""
    target = layers("lstm", True, torch.float32)
    with wrong("gate", 1.00005):
        for profile, accused in (("cuda-sm90", True), ("cuda-sm90+tf32-convolutions", False)):
            verdict = plumbline.compare(target, None, server, capture="outputs", profile=profile)
            assert (verdict.verdict == "TYPE_II") is accused, verdict.explain()


def test_what_is_not_told_of_layers_is_opaque(server: str) -> None:
    verdict = plumbline.compare(layers("gru", True, torch.float32, num_layers=2), None, server)
    assert verdict.coverage.opaque == 0, verdict.explain()
    x, h = torch.randn(4, 6, 5), torch.zeros(2, 6, 7)
    weights = list(module("gru", num_layers=2).parameters())

    def dropped() -> Taps:
        with torch.no_grad():
            made = aten._cudnn_rnn(x, weights, 4, None, h, None, 3, 7, 0, 2, False, 0.5, True, False, [], None)
        return {"out": made[0] * 2}

    assert plumbline.compare(dropped, None, server).coverage.opaque == 1


def cells(kind: str, fused: bool, dtype: torch.dtype) -> Callable[[], Taps]:
    def run() -> Taps:
        torch.manual_seed(7)
        gates = 4 if kind == "lstm" else 3
        x, h, c = (torch.randn(6, n).to(dtype).requires_grad_() for n in (5, 7, 7))
        w, u, a, b = ((torch.randn(gates * 7, *rest) / 3).to(dtype).requires_grad_() for rest in ((5,), (7,), (), ()))
        i, j = x @ w.T, h @ u.T
        if fused and kind == "lstm":
            h1, c1, _ = aten._thnn_fused_lstm_cell(i, j, c, a, b)
        elif fused:
            h1, _ = aten._thnn_fused_gru_cell(i, j, h, a, b)
            c1 = h1
        elif kind == "lstm":
            h1, c1, _ = cuda_recurrent._lstm_cell(i, j, c, a, b)
        else:
            h1, _ = cuda_recurrent._gru_cell(i, j, h, a, b)
            c1 = h1
        loss = (h1.float() * 3).square().mean() + c1.float().sum() / 10
        loss.backward()
        leaves = (x, h, w, u, a, b, *((c,) if kind == "lstm" else ()))
        return {"loss": loss} | {f"g{k}": leaf.grad for k, leaf in enumerate(leaves)}

    return run


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_cells(server: str, kind: str, dtype: torch.dtype) -> None:
    target, reference = cells(kind, True, dtype), cells(kind, False, dtype)
    verdict = plumbline.compare(target, reference, server, capture="outputs", profile="cuda-sm90")
    assert (verdict.verdict, verdict.coverage.opaque) == ("TYPE_I", 0), verdict.explain()
    assert verdict.math_resolution < 1e-9
    for name in ("gate", "state"):
        with wrong(name, 1.001 if dtype is torch.float32 else 1.1):
            verdict = plumbline.compare(target, None, server, capture="outputs", profile="cuda-sm90")
        assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
        assert verdict.suspect is not None and f"_thnn_fused_{kind}_cell" in verdict.suspect.op
