"""What capture and lowering do not model: reported, never wrong, never raised into the job, no bit changed."""

from collections.abc import Callable

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline

Program = Callable[[], dict[str, Tensor]]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@torch.library.custom_op("plumbline_test::scaled_sin", mutates_args=())
def scaled_sin(x: Tensor, a: float) -> Tensor:
    return torch.sin(x) * a


def _save(ctx, inputs, output) -> None:
    ctx.x, ctx.a = inputs


scaled_sin.register_autograd(lambda ctx, grad: (grad * torch.cos(ctx.x) * ctx.a, None), setup_context=_save)


class ByNumpy(torch.autograd.Function):
    """Computes out of PyTorch's sight."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 3)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad * 3 * ctx.saved_tensors[0].square()


class Visible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad * ctx.saved_tensors[0].exp()


def trained(layer: Callable[[Tensor], Tensor], scale: float = 1.0) -> dict[str, Tensor]:
    weight = normal(1, 8, 8).requires_grad_()
    loss = layer(normal(2, 4, 8) @ weight * scale).square().mean()
    loss.backward()
    return {"loss": loss.detach(), "grad": weight.grad}


def pairs(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def sine(x: Tensor, mirrored: bool = False) -> dict[str, Tensor]:
    return {"y": torch.view_as_real((torch.pi - pairs(x) if mirrored else pairs(x)).sin())}


def sparse_softmax(scale: float) -> dict[str, Tensor]:
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 0], [2, 0]]), normal(4, 2) * scale, (3, 3))
    return {"y": torch.sparse.softmax(sparse, 1).to_dense()}


def nested(scale: float) -> dict[str, Tensor]:
    rows = torch.nested.nested_tensor([normal(1, 2, 3) * scale, normal(2, 4, 3)])
    return {"y": torch.nested.to_padded_tensor(rows * 2, 0.0)}


def quantised(scale: float) -> dict[str, Tensor]:
    return {"y": torch.quantize_per_tensor(normal(1, 64) * scale, 0.01, 0, torch.qint8).dequantize() * 2}


def unsigned(scale: float) -> dict[str, Tensor]:
    return {"y": (normal(1, 64).abs() * 1e3 * scale).to(torch.uint16).float()}


# What is called, with the factor that makes a bug of it; the operation that must be named as opaque.
OPAQUE: dict[str, tuple[Callable[[float], dict[str, Tensor]], str]] = {
    "custom operator": (lambda s: trained(lambda x: scaled_sin(x, 2.0), s), "plumbline_test::scaled_sin"),
    "complex sine": (lambda s: sine(normal(1, 4, 8) * s), "aten::sin.default on complex64"),
    "sparse": (sparse_softmax, "aten::_sparse_softmax"),
    "nested": (nested, "aten::mul.Tensor on nested"),
    "quantised": (quantised, "aten::quantize_per_tensor.default on qint8"),
    "unsigned": (
        lambda s: {"y": (normal(1, 64).abs() * 1e3 * s).to(torch.uint16).float()},
        "aten::_to_copy.default on",
    ),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_opaque_operations_are_named_and_their_inputs_compared(server: str, name: str) -> None:
    program, operation = OPAQUE[name]
    plain, seen = program(1.0), {}

    def watched() -> dict[str, Tensor]:
        seen.update(program(1.0))
        return seen

    same = plumbline.compare(watched, lambda: program(1.0), server=server)
    assert same.grade == "MATCH", same.explain()
    assert any(found.startswith(operation) for found in same.coverage.opaque_names), same.coverage
    assert all(torch.equal(plain[key], seen[key]) for key in plain)
    bug = plumbline.compare(lambda: program(1.01), lambda: program(1.0), server=server)
    assert bug.verdict == "TYPE_II" and bug.cause == "MATHEMATICS", bug.explain()


def test_an_unknown_operation_with_other_inputs_and_equal_results_accuses_nobody(server: str) -> None:
    x = normal(1, 4, 8)
    verdict = plumbline.compare(lambda: sine(x, mirrored=True), lambda: sine(x), server=server)
    assert verdict.verdict == "INCONCLUSIVE" and "nearly the same" in verdict.sentence, verdict.explain()


def test_autograd_functions_are_seen_through(server: str) -> None:
    verdict = plumbline.compare(lambda: trained(Visible.apply), lambda: trained(torch.exp), server=server)
    assert verdict.verdict == "TYPE_I" and verdict.coverage.opaque == 0, verdict.explain()


def by_pointer(x: Tensor) -> Tensor:
    """As a kernel does that is called by address: it writes memory that PyTorch gave it empty."""
    out = torch.empty_like(x)
    numpy.exp(x.detach().numpy(), out=out.numpy())
    return out * 2


@pytest.mark.parametrize("unseen", [ByNumpy.apply, by_pointer])
def test_what_is_computed_out_of_sight_accuses_nobody(server: str, unseen: Callable[[Tensor], Tensor]) -> None:
    x, weight = normal(2, 4, 8), normal(1, 8, 8)

    def program(factor: float) -> dict[str, Tensor]:
        return {"y": unseen((x @ weight.requires_grad_() * factor) / factor).detach() * 0.5}

    same = plumbline.compare(lambda: program(1.0), lambda: program(1.0), server=server)
    assert same.verdict == "TYPE_I", same.explain()
    assert list(same.coverage.opaque_names) == ["plumbline::out_of_sight"]
    rounded = plumbline.compare(lambda: program(3.0), lambda: program(1.0), server=server)
    assert rounded.verdict == "INCONCLUSIVE", rounded.explain()
    # What numpy is handed unwritten may look like a tie that Python read.
    assert "not modelled" in rounded.sentence or "Python may have" in rounded.sentence, rounded.explain()


def strided() -> dict[str, Tensor]:
    x, z = normal(1, 8, 6).T, torch.zeros(4, 3)
    z.T.copy_((x[::2] * 2)[:, ::2])
    z[:, ::2].add_(1)
    return {"z": z.T, "y": z.expand(2, 4, 3).sum()}


def empty() -> dict[str, Tensor]:
    x, weight = normal(1, 0, 8), normal(2, 8, 4).requires_grad_()
    loss = (x @ weight).sum() + weight.square().sum()
    loss.backward()
    return {"loss": loss.detach(), "grad": weight.grad, "nothing": x @ weight.detach()}


def scalars() -> dict[str, Tensor]:
    x = torch.tensor(3.0).requires_grad_()
    loss = (x * x).sin()
    loss.backward()
    return {"loss": loss.detach(), "grad": x.grad}


def drawn() -> dict[str, Tensor]:
    weight = normal(1, 64).requires_grad_()
    loss = F.rrelu(weight, training=True).sum()
    loss.backward()
    return {"loss": loss.detach(), "grad": weight.grad}


def image_step(layout: torch.memory_format = torch.channels_last) -> dict[str, Tensor]:
    torch.manual_seed(8)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(2, 8),
        nn.Upsample(scale_factor=2, mode="bilinear"), nn.AvgPool2d(2), nn.Conv2d(8, 4, 1),
    ).to(memory_format=layout)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loss = model(normal(3, 2, 3, 8, 8).to(memory_format=layout)).square().mean()
    loss.backward()
    optimizer.step()
    return {"loss": loss.detach()} | {name: p.detach() for name, p in model.named_parameters()}


def test_channels_last_is_another_layout_of_the_same(server: str) -> None:
    verdict = plumbline.compare(image_step, lambda: image_step(torch.contiguous_format), server=server)
    assert verdict.verdict == "TYPE_I" and verdict.coverage.opaque == 0, verdict.explain()
    local = plumbline.compare(image_step, None, server=server, capture="outputs")
    assert local.verdict == "TYPE_I", local.explain()


def test_draws_of_another_seed_accuse_nobody(server: str) -> None:
    def program(seed: int) -> Program:
        torch.manual_seed(seed)
        return drawn()

    verdict = plumbline.compare(lambda: program(6), lambda: program(7), server=server)
    assert verdict.verdict != "TYPE_II", verdict.explain()


@pytest.mark.parametrize("program", [strided, empty, scalars, drawn, image_step], ids=lambda program: program.__name__)
def test_unusual_tensors(server: str, program: Program) -> None:
    torch.manual_seed(6)
    plain = program()
    torch.manual_seed(6)
    seen: dict[str, Tensor] = {}

    def watched() -> dict[str, Tensor]:
        seen.update(program())
        return seen

    verdict = plumbline.compare(watched, program, server=server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    assert all(torch.equal(plain[key], seen[key]) for key in plain)


def test_taps_that_cannot_be_described(server: str) -> None:
    sparse = torch.sparse_coo_tensor(torch.tensor([[0], [2]]), torch.ones(1), (3, 3))
    with pytest.raises(plumbline.PlumblineError, match="sparse_coo"):
        plumbline.compare(lambda: {"y": sparse}, None, server=server)


def test_unusual_steps_of_a_job(server: str) -> None:
    """Without backward; with a loss that no backward starts from; with sparse gradients."""
    torch.manual_seed(7)
    embed, head = nn.Embedding(8, 4, sparse=True), nn.Linear(4, 1)
    model = nn.Sequential(embed, head)
    optimizers = [torch.optim.SGD(embed.parameters(), 0.1), torch.optim.SGD(head.parameters(), 0.1)]
    with plumbline.watch(model, optimizers, server, job="unusual", every=1) as audit:
        with audit.step():
            model(torch.tensor([1, 2]))
        with audit.step():
            model(torch.tensor([1, 2])).backward(torch.ones(2, 1))  # No scalar: no loss.
            for optimizer in optimizers:
                optimizer.step()
        with audit.step():
            for optimizer in optimizers:
                optimizer.zero_grad()
            model(torch.tensor([1, 1])).square().sum().backward()
            for optimizer in optimizers:
                optimizer.step()
        assert audit.flush()
        without, vector, usual = audit.verdicts()
    assert without.verdict == "INCONCLUSIVE" and "No tap" in without.sentence
    assert vector.verdict == "TYPE_I" and "loss" not in vector.taps, vector.explain()
    assert usual.verdict == "TYPE_I" and "loss" in usual.taps, usual.explain()
    assert audit.missed() == 0 and not audit.errors()
