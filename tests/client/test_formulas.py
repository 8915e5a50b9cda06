"""Operations that the daemon has no lowering for are audited by formulas: right ones are explained, and where formula
and operation disagree, that is found at the operation, whichever of the two is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import plumbline
from plumbline.defined import _outside_of_dispatch
from plumbline.definition import UNTOLD, WORKSPACE
from plumbline.formulas import formulas

aten = torch.ops.aten
Program = Callable[[], Tensor]


def values(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


ROWS, IMAGES, VOLUMES = values(1, 4, 6), values(2, 2, 3, 6, 5), values(3, 2, 3, 4, 5, 4)
EDGES = torch.linspace(-1.5, 1.5, 8)
WORDS = torch.tensor([[1, 2, 2], [3, 1, 0]])
GRID, GRID_3D = values(4, 2, 4, 3, 2) * 0.7, values(5, 2, 3, 4, 3, 3) * 0.7
MULTI = torch.tensor([[0, 3, -1, 2, 1, 0], [5, -1, 0, 0, 0, 0], [1, 2, 3, 4, 5, 0], [-1, 0, 0, 0, 0, 0]])
REFLECTORS, TAU = torch.geqrf(values(6, 5, 3))
POWERS, LABELS = torch.tensor([1.0, -1e-40, 2**-126, 1e30, 0.0, 1e-3]), torch.tensor([0, 3, 1, 2])
STATISTICS = torch.linspace(-1, 1, 3), torch.linspace(0.5, 2, 3)


def chunked() -> Any:
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    return LinearCrossEntropyOptions(batch_chunk_size=3)


def sampled(mode: str, padding: str, align: bool, volumes: bool = True) -> Program:
    def program(x: Tensor) -> Tensor:
        images, grid = (VOLUMES, GRID_3D) if volumes else (IMAGES, GRID)
        if volumes and mode == "bicubic":
            grid = grid[:, :1, :2]  # 64 values are read for each point.
        return F.grid_sample(images * x[0, 0], grid * (1 + x[0, 1] / 8), mode, padding, align)

    return program


def normalised(x: Tensor) -> Tensor:
    mean, variance = (statistic.clone() for statistic in STATISTICS)
    out = aten._batch_norm_with_update(IMAGES * x[0, 0], x[0, :3], x[1, :3], mean, variance, 0.1, 1e-5)[0]
    return out.sum() + (mean + variance).sum() + (out * IMAGES).sum()


def normalised_by(name: str) -> Callable[[Tensor], tuple[Tensor, ...]]:
    flag = (True,) if "legit" in name else ()
    return lambda x: getattr(aten, name)(x, ROWS[0, :3], ROWS[1, :3], *STATISTICS, *flag, 0.1, 1e-5)


# By what it shows: a program of a matrix that requires a gradient, and the operations that it calls.
CASES: dict[str, tuple[Callable[[Tensor], Tensor], list[str]]] = {
    "bucketize": (lambda x: x * torch.bucketize(x, EDGES), ["bucketize.Tensor"]),
    "bucketize right": (lambda x: x * torch.bucketize(x, EDGES, right=True), ["bucketize.Tensor"]),
    "searchsorted": (lambda x: x * torch.searchsorted(EDGES.expand(4, 8), x.detach()), ["searchsorted.Tensor"]),
    "searchsorted by a sorter": (
        lambda x: x * torch.searchsorted(EDGES.flip(0), x.detach(), sorter=torch.arange(7, -1, -1), side="right"),
        ["searchsorted.Tensor"],
    ),
    "nanmedian": (lambda x: torch.where(x > 1, torch.nan, x).nanmedian(), ["nanmedian.default"]),
    "histogram": (lambda x: x.sum() * torch.histogram(x.detach(), EDGES, density=True).hist, ["histogram.bins_tensor"]),
    "histogram of equal parts": (
        lambda x: x.sum() * torch.histogram(x.detach(), 5, weight=x.detach().abs()).hist,
        ["histogram.bin_ct"],
    ),
    "histogram of a range": (
        lambda x: x.sum() * torch.histogram(x.detach(), 5, range=(-1.0, 1.0), density=True).hist,
        ["histogram.bin_ct"],
    ),
    "histogram of points": (
        lambda x: x.sum() * torch.histogramdd(x.detach().reshape(12, 2), [3, 4], density=True).hist,
        ["_histogramdd_bin_edges.default", "_histogramdd_from_bin_cts.default"],
    ),
    "histogram of points by edges": (
        lambda x: x.sum() * torch.histogramdd(x.detach().reshape(12, 2), [EDGES, EDGES[::2].contiguous()]).hist,
        ["_histogramdd_from_bin_tensors.default"],
    ),
    "mantissas": (lambda x: torch.frexp(x * POWERS[[0, 0, 5, 5, 0, 5]]).mantissa, ["frexp.Tensor"]),
    "exponents": (lambda x: torch.frexp(x.detach() * POWERS).exponent * x, ["frexp.Tensor"]),
    "neighbours": (lambda x: torch.nextafter((x * POWERS).detach(), ROWS.flip(0)) + x, ["nextafter.default"]),
    "exponential of matrices": (
        lambda x: torch.linalg.matrix_exp(x[:, :4] * torch.tensor([0.1, 1.0, 4.0])[:, None, None]),
        ["linalg_matrix_exp.default"],
    ),
    "incomplete gamma": (lambda x: torch.special.gammainc(ROWS.exp(), x.exp() * 2), ["igamma.default"]),
    "incomplete gamma's rest": (lambda x: torch.special.gammaincc(ROWS.exp(), x.exp()), ["igammac.default"]),
    "chunks of a later dimension": (
        lambda x: torch._chunk_cat([x.detach(), TAU.expand(4, 3)], 1, 3) * x.sum(),
        ["_chunk_cat.default"],
    ),
    **{
        f"a layer's scores, {reduction}": (
            lambda x, reduction=reduction: F.linear_cross_entropy(
                x, ROWS.exp(), LABELS, reduction=reduction, options=chunked()
            ),
            [f"torch_nn::_linear_cross_entropy_batch_chunked{'_no_reduction' * (reduction == 'none')}.default"],
        )
        for reduction in ("mean", "sum", "none")
        if "torch_nn::_linear_cross_entropy_batch_chunked.default" in formulas
    },
    "samples of gamma": (
        lambda x: torch.distributions.Gamma((2 * x).exp() * torch.tensor([1, 1, 1, 9, 9, 9]), 1.0).rsample(),
        ["_standard_gamma_grad.default"],
    ),
    "shares": (lambda x: torch.distributions.Dirichlet((2 * x).exp()).rsample(), ["_dirichlet_grad.default"]),
    "shares of large parameters": (
        lambda x: torch.distributions.Dirichlet(x.exp() + torch.tensor([9, 9, 9, 1, 20, 40])).rsample(),
        ["_dirichlet_grad.default"],
    ),
    "slopes that are drawn": (lambda x: torch.rrelu(x, training=True), ["rrelu_with_noise_backward.default"]),
    "slopes of evaluation": (lambda x: torch.rrelu(x), ["rrelu_with_noise_backward.default"]),
    # By PyTorch's own decompositions.
    "activated product": (
        lambda x: aten._addmm_activation(x[0, :5].detach(), x.detach(), values(9, 6, 5)) * x.sum(),
        ["_addmm_activation.default"],
    ),
    "window": (lambda x: x * torch.hann_window(6), ["hann_window.default"]),
    "window of both ends": (lambda x: x * torch.hann_window(6, False), ["hann_window.periodic"]),
    **{
        name: (lambda x, name=name: normalised_by(name)(IMAGES * x[0, 0].detach())[0] * x.sum(), [f"{name}.default"])
        for name in (
            "_batch_norm_no_update", "_batch_norm_with_update_functional", "_native_batch_norm_legit_functional"
        )
    },
    "linspace": (lambda x: x.sum() * torch.linspace(x[0, 0].detach(), x[0, 1].detach(), 7), ["linspace.Tensor_Tensor"]),
    "logspace": (lambda x: x.sum() * torch.logspace(x[0, 0].detach(), 2.0, 7), ["logspace.Tensor_Scalar"]),
    "as_strided_copy": (lambda x: aten.as_strided_copy(x * 1, [2, 3], [6, 2], 1), ["as_strided_copy.default"]),
    "as_strided_scatter": (
        lambda x: torch.as_strided_scatter(x * 1, x[:2, :3].detach(), [2, 3], [6, 2], 1),
        ["as_strided_scatter.default"],
    ),
    "segments": (
        lambda x: torch.segment_reduce(x, "mean", lengths=torch.tensor([1, 0, 3]), initial=0.5),
        ["segment_reduce.default", "_segment_reduce_backward.default"],
    ),
    "segments by offsets": (
        lambda x: torch.segment_reduce(x, "max", offsets=torch.tensor([0, 2, 4])),
        ["segment_reduce.default", "_segment_reduce_backward.default"],
    ),
    "batch norm with update": (normalised, ["_batch_norm_with_update.default", "batch_norm_backward.default"]),
    **{
        f"volumes, {mode}, {padding}, {align}": (
            sampled(mode, padding, align),
            ["grid_sampler_3d.default", "grid_sampler_3d_backward.default"],
        )
        for mode, padding, align in (
            ("bilinear", "zeros", False),
            ("bilinear", "border", True),
            ("bilinear", "reflection", False),
            ("nearest", "reflection", True),
            ("bicubic", "zeros", False),  # Its other edges: cubic images, whose formulas are the same and shorter.
        )
    },
    **{
        f"cubic images, {padding}, {align}": (
            sampled("bicubic", padding, align, False),
            ["grid_sampler_2d.default", "grid_sampler_2d_backward.default"],
        )
        for padding, align in (("zeros", True), ("border", False), ("reflection", False), ("reflection", True))
    },
    **{
        f"{mode} with antialias to {size}": (
            lambda x, mode=mode, size=size: F.interpolate(IMAGES * x[0, 0], size, mode=mode, antialias=True),
            [f"_upsample_{mode}2d_aa.default", f"_upsample_{mode}2d_aa_backward.default"],
        )
        for mode in ("bilinear", "bicubic")
        for size in ((3, 2), (4, 9))
    },
    "fractional pooling": (
        lambda x: F.fractional_max_pool2d(IMAGES * x[0, 0], 2, (3, 3), _random_samples=torch.full((2, 3, 2), 0.4)),
        ["fractional_max_pool2d.default", "fractional_max_pool2d_backward.default"],
    ),
    "fractional pooling of volumes": (
        lambda x: F.fractional_max_pool3d(
            VOLUMES * x[0, 0], 2, (2, 3, 2), _random_samples=torch.full((2, 3, 3), 0.3)
        ),
        ["fractional_max_pool3d.default", "fractional_max_pool3d_backward.default"],
    ),
    "several classes": (
        lambda x: F.multilabel_margin_loss(x, MULTI, reduction="none"),
        ["multilabel_margin_loss_forward.default", "multilabel_margin_loss_backward.default"],
    ),
    "sequences": (
        lambda x: F.ctc_loss(
            (values(7, 7, 2, 4) * x[0, 0]).log_softmax(-1), WORDS, (7, 5), (3, 2), reduction="none"
        ),
        ["_ctc_loss.default", "_ctc_loss_backward.default"],
    ),
    "sequences, joined, one of them too long": (
        lambda x: F.ctc_loss(
            (values(7, 7, 2, 4) * x[0, 0]).log_softmax(-1), torch.tensor([1, 2, 2, 1, 1]),
            torch.tensor([7, 2]), torch.tensor([3, 2]), reduction="none", zero_infinity=True
        ),
        ["_ctc_loss.Tensor", "_ctc_loss_backward.Tensor"],
    ),
    "reflections": (
        lambda x: torch.linalg.householder_product(REFLECTORS, TAU * x[0, 0].exp()),
        ["linalg_householder_product.default"],
    ),
    "reflected": (
        lambda x: torch.ormqr(REFLECTORS, TAU, x[:, :5], left=False, transpose=True),
        ["ormqr.default"],
    ),
}  # fmt: skip


def qualified(name: str) -> str:
    return name if "::" in name else f"aten::{name}"


def program(case: str, factor: float = 1.0) -> Callable[[], dict[str, Tensor]]:
    def run() -> dict[str, Tensor]:
        x = ROWS.clone().requires_grad_()
        y = CASES[case][0](x * factor)
        (y * values(8, *y.shape)).sum().backward()
        return {"y": y.detach(), "grad": x.grad}

    return run


def wide(value: Any) -> Any:
    """An argument of a call in fp64."""
    if isinstance(value, list):
        return [wide(x) for x in value]
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value.clone()
    return torch.float64 if value is torch.float32 else value


class Evaluated(TorchDispatchMode):
    """Evaluates formulas beside their operations, in fp64."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        definition = formulas.get(f"{func._schema.name}.{func._schema.overload_name or 'default'}")
        if definition is not None:
            self.found.add(definition.name)
            own = definition.name == "aten::nextafter.default"  # In fp64 it has other neighbours.
            convert = (lambda x: x) if own else wide
            measured = definition.measure(args, kwargs)
            given, named = [convert(x) for x in args], {name: convert(x) for name, x in kwargs.items()}
            for index, (x, argument) in enumerate(zip(given, func._schema.arguments, strict=False)):
                if argument.name in definition.numbers:
                    given[index] = x.tolist() if isinstance(x, Tensor) else x
            with _outside_of_dispatch():
                mine = definition.call(*given, **named, **measured)
            theirs = func(*(convert(x) for x in args), **named)
            both = (x if isinstance(x, (tuple, list)) else (x,) for x in (mine, theirs))
            for one, other in zip(*both, strict=False):  # Then comes what it writes.
                if one is not UNTOLD and one is not WORKSPACE:
                    # A derivative that takes what its forward operation rounded, and ranges in the default format.
                    rounded = "ctc_loss_backward" in definition.name or other.dtype is torch.float32
                    torch.testing.assert_close(one, other, rtol=1e-4 if rounded else 1e-9, atol=1e-6, equal_nan=True)
        return func(*args, **kwargs)


@pytest.mark.parametrize("case", CASES)
def test_a_formula_computes_what_its_operation_does(case: str) -> None:
    with Evaluated() as evaluated:
        program(case)()
    assert evaluated.found == {qualified(name) for name in CASES[case][1]}


# All but the longest: its formula's values are compared below, and the same formula is audited for images.
@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("volumes, bicubic")])
def test_operations_are_audited_by_their_formulas(server: str, case: str) -> None:
    right = plumbline.compare(program(case), program(case), server)
    assert right.verdict == "TYPE_I", right.explain()
    assert right.coverage.opaque == 0 and not right.hazards, right.explain()
    assert plumbline.compare(program(case), None, server).verdict == "TYPE_I"
    bug = plumbline.compare(program(case, 1.001), program(case), server)
    assert bug.verdict == "TYPE_II" or torch.equal(program(case, 1.001)()["y"], program(case)()["y"]), bug.explain()


# Whose formulas choose elements by what they compute: a difference is seen at a tap, and not yet placed.
CHOOSING = ("volumes", "cubic", "fractional", "sequences")


@pytest.mark.parametrize("case", [case for case in CASES if "bucketize" not in case and "searchsorted" not in case])
def test_a_formula_that_disagrees_is_found(server: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = qualified(CASES[case][1][0])
    formula = formulas[name].formula

    def wrong(*args: object, **named: object) -> object:
        out = formula(*args, **named)
        return type(out)([out[0] * 1.01, *out[1:]]) if isinstance(out, (tuple, list)) else out * 1.01

    monkeypatch.setattr(formulas[name], "formula", wrong)
    verdict = plumbline.compare(program(case), None, server)
    if case.startswith(CHOOSING):
        assert verdict.verdict != "TYPE_I" or verdict.coverage.opaque, verdict.explain()
    else:
        assert verdict.verdict == "TYPE_II" and verdict.suspect.op == name, verdict.explain()


def test_a_decomposition_without_a_kernel_here_is_a_derivative() -> None:
    x, weight, gradient = (values(seed, 4, 6).double() for seed in range(3))
    scale = (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    mine = formulas["aten::_fused_rms_norm_backward.default"].call(gradient, x, [6], scale, weight[0], [True, True])
    x, weight = x.requires_grad_(), weight[0].clone().requires_grad_()
    theirs = torch.autograd.grad(F.rms_norm(x, (6,), weight, 1e-5), (x, weight), gradient)
    torch.testing.assert_close(tuple(mine), theirs, rtol=1e-10, atol=1e-10)


def test_derivatives_of_samples_are_those_of_the_implicit_function() -> None:
    """To a thousandth, where the distribution function by differences is that exact."""
    draw = torch.Generator().manual_seed(0)
    a = torch.rand(2000, dtype=torch.float64, generator=draw) * 15 + 0.3
    x = torch._standard_gamma(a, generator=draw)
    density = ((a - 1) * x.log() - x - torch.lgamma(a)).exp()
    slope = (torch.special.gammainc(a + 1e-5, x) - torch.special.gammainc(a - 1e-5, x)) / 2e-5
    usual = density > 1e-3
    mine = formulas["aten::_standard_gamma_grad.default"].call(a, x)
    torch.testing.assert_close(mine[usual], (-slope / density)[usual], rtol=1e-3, atol=0)

    # Beta, by its density's integral: of x = t / (1 + t) the ends are far away.
    a, b = torch.tensor([0.7, 2.0, 8.0], dtype=torch.float64)[:, None], torch.tensor([1.5, 3.0, 9.0]).double()[:, None]
    x = torch.tensor([[0.05, 0.3], [0.5, 0.8], [0.3, 0.47]], dtype=torch.float64)

    def below(a: Tensor, to: Tensor) -> Tensor:
        u = torch.linspace(-60, 0, 200001, dtype=torch.float64) + to.logit()[..., None]
        log = a[..., None] * F.logsigmoid(u) + b[..., None] * F.logsigmoid(-u)
        return torch.trapezoid((log - (torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b))[..., None]).exp(), u)

    density = (
        (a - 1) * x.log() + (b - 1) * (1 - x).log() - torch.lgamma(a) - torch.lgamma(b) + torch.lgamma(a + b)
    ).exp()
    slope = (below(a + 1e-5, x) - below(a - 1e-5, x)) / 2e-5
    given = (tensor.contiguous() for tensor in torch.broadcast_tensors(x, a, a + b))
    mine = formulas["aten::_dirichlet_grad.default"].call(*given)
    torch.testing.assert_close(mine, -slope / density / (1 - x), rtol=2e-3, atol=0)


def test_each_formula_is_tried() -> None:
    tried = {qualified(name) for _, names in CASES.values() for name in names}
    others = {
        "_fused_rms_norm_backward.default",  # CUDA's: above.
        # The same formulas under other names, or of what no program of a gradient calls.
        *("bucketize.Scalar", "searchsorted.Scalar", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor"),
        *(
            "logspace.default",
            "logspace.Tensor_Tensor",
            "logspace.Scalar_Tensor",
        ),
        # tests/client/test_cuda_recurrent.py, test_fused_products.py, test_cuda_norms.py
        *(f"cudnn_grid_sampler{backward}.default" for backward in ("", "_backward")),
        *(f"_cudnn_rnn{backward}.default" for backward in ("", "_backward")),
        *(f"_thnn_fused_{cell}.default" for cell in ("lstm_cell", "lstm_cell_backward_impl", "gru_cell")),
        *("_thnn_fused_gru_cell_backward.default", "_int_mm.default"),
        *(f"_masked_softmax{backward}.default" for backward in ("", "_backward")),
    }
    assert set(formulas) == tried | {f"aten::{name}" for name in others}
