"""Activations, losses, functions, running products and distances with their gradients."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from image_expressions import Expression, differentiated
from torch import Tensor


def bags(table: Tensor, weights: Tensor) -> dict[str, Callable[[], Tensor]]:
    """One bag is empty; a word comes twice in another."""
    words, starts = torch.tensor([1, 2, 4, 5, 4, 3, 2, 8, 1, 1]), torch.tensor([0, 4, 4])

    def bag(mode: str, words: Tensor = words, starts: Tensor | None = starts, **options: Any) -> Callable[[], Tensor]:
        # The sum of the weights keeps them in the graph.
        return lambda: F.embedding_bag(words, table, starts, mode=mode, **options) + weights.sum()

    return {mode: bag(mode) for mode in ("sum", "mean", "max")} | {
        "weighted": lambda: F.embedding_bag(words, table, starts, mode="sum", per_sample_weights=weights.view(-1)[:10]),
        "padded": bag("mean", words.view(2, 5), None, padding_idx=4),
        "padded-sum": bag("sum", words.view(2, 5), None, padding_idx=1),
        "padded-max": bag("max", words.view(2, 5), None, padding_idx=1),
        "last": bag("max", words, torch.tensor([0, 4, 10]), include_last_offset=True),
    }


def put(x: Tensor, where: Any, values: Tensor | float) -> Tensor:
    """A copy of x with elements replaced."""
    made = x * 1
    made[where] = values
    return made


def core_expressions(dtype: torch.dtype = torch.float64, seed: int = 3) -> dict[str, Expression]:
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return (2 * torch.randn(*shape, generator=draw)).to(dtype).requires_grad_()

    def uniform(low: float, high: float) -> Tensor:
        return (low + (high - low) * torch.rand(4, 6, generator=draw)).to(dtype).requires_grad_()

    x, y, slope, wide = normal(4, 6), normal(4, 6), normal(6), normal(4, 6).detach().mul(8).requires_grad_()
    above, inside, beyond = uniform(0.2, 3), uniform(-0.9, 0.9), uniform(1.1, 4)
    table = normal(9, 5)
    points, others = normal(2, 5, 3), normal(2, 4, 3)
    index, mask = torch.tensor([[0, 1, 1, 3, 2, 0]]), torch.tensor([True, False, True, False, False, True])
    functions = {
        "elu": (lambda: F.elu(x, 0.7) + F.elu(x * 1.5, 1.1, inplace=True), [x]),
        "celu": (lambda: F.celu(x, 1.3), [x]),
        "selu": (lambda: F.selu(x), [x]),
        "hardswish": (lambda: F.hardswish(wide), [wide]),
        "hardsigmoid": (lambda: F.hardsigmoid(wide), [wide]),
        "softshrink": (lambda: F.softshrink(x, 0.3), [x]),
        "hardshrink": (lambda: F.hardshrink(x, 0.3), [x]),
        "prelu": (lambda: F.prelu(x, slope) + F.prelu(y, slope[:1]), [x, y, slope]),
        "glu": (lambda: F.glu(x, 0) * F.glu(y, -2), [x, y]),
        "smooth-l1": (lambda: F.smooth_l1_loss(x, y, beta=0.7) + F.smooth_l1_loss(y, x, reduction="sum"), [x, y]),
        "smooth-l1-each": (lambda: F.smooth_l1_loss(x, y, reduction="none"), [x, y]),
        "huber": (lambda: F.huber_loss(x, y, delta=1.3) + F.huber_loss(y, x, reduction="sum"), [x, y]),
        "l1": (lambda: F.l1_loss(x, y), [x, y]),
        "kl-div": (lambda: F.kl_div(x, above.detach(), reduction="batchmean"), [x]),
        "xlogy": (lambda: torch.xlogy(x, above) + torch.xlogy(torch.zeros_like(x), above), [x, above]),
        "log2": (lambda: above.log2() + above.log10(), [above]),
        "exp2": (lambda: x.exp2(), [x]),
        "tan": (lambda: inside.tan(), [inside]),
        "hyperbolic": (lambda: x.sinh() * y.cosh(), [x, y]),
        "asinh": (lambda: x.asinh(), [x]),
        "erfc": (lambda: x.erfc(), [x]),
        "acosh": (lambda: beyond.acosh(), [beyond]),
        "atanh": (lambda: inside.atanh(), [inside]),
        "asin": (lambda: inside.asin() + inside.detach().round().asin(), [inside]),
        "acos": (lambda: inside.acos() + inside.detach().round().acos(), [inside]),
        "atan": (lambda: (wide * wide.detach().exp()).atan(), [wide]),
        "atan2": (lambda: torch.atan2(x, y) + torch.atan2(y[0], x), [x, y]),
        "logaddexp": (lambda: torch.logaddexp(x, y), [x, y]),
        "logcumsumexp": (lambda: x.logcumsumexp(1), [x]),
        "cdist": (lambda: torch.cdist(points, others), [points, others]),
        "cdist-product": (lambda: torch.ops.aten._euclidean_dist(points, others), [points, others]),
        "cdist-1": (lambda: torch.cdist(points, others, p=1.0), [points, others]),
        "pdist": (lambda: F.pdist(points[0]), [points]),
        "pdist-1": (lambda: F.pdist(points[1], p=1.0), [points]),
        "pdist-most": (lambda: F.pdist(points[1].detach(), p=float("inf")) + x[0, 0], [x]),
        "dropout": (lambda: torch.native_dropout(x, 0.3, True)[0] * torch.native_dropout(y, 0.3, False)[0], [x, y]),
        "masked-scatter": (lambda: x.masked_scatter(y > 0, others) + x.masked_scatter(mask, y), [x, y, others]),
        "masked-select": (lambda: x.masked_select(y > 0) * y.masked_select(y > 0), [x, y]),
        "nonzero": (lambda: x[torch.where(y > 0)] * (x > 0).nonzero().sum(), [x]),
        "mask-index": (lambda: x[mask[:4]] * x[x > 0].sum() + y[:, mask].mean(), [x, y]),
        "mask-rows": (lambda: F.cross_entropy(x[index[0, :4] < 3], torch.tensor([1, 2, 0, 4])[index[0, :4] < 3]), [x]),
        "mask-beside": (
            lambda: points[:, mask[:5], 0].sum() * points[torch.tensor([1, 0]), mask[:5]],
            [points],
        ),
        "mask-put": (
            lambda: put(x, y > 0, 0.5) + put(y, (slice(None), mask), x[:, :3]) + put(x, mask[:4], y[1]),
            [x, y],
        ),
        "mask-add": (lambda: x.index_put((mask[:4],), y[:2], accumulate=True), [x, y]),
        "mask-put-beside": (lambda: x.index_put((mask[:4], torch.tensor([5, 1])), y[0, :2]), [x, y]),
        "repeat-interleave": (lambda: x.repeat_interleave(torch.tensor([2, 0, 3, 1]), 0), [x]),
        "counts": (lambda: x[:, :2] * index[0].bincount().sum() + index[0].bincount(y[0].detach(), 7)[:2], [x]),
        "places": (
            lambda: (
                x[torch.bucketize(index[0], torch.tensor([1, 2, 3]))]
                * x[torch.searchsorted(torch.tensor([0, 1, 3]), index[0], right=True)]
            ),
            [x],
        ),
        "triangle": (
            lambda: x[tuple(torch.tril_indices(4, 5, 1))] * y[tuple(torch.triu_indices(4, 6, 1))].sum(),
            [x, y],
        ),
        "diagonal": (lambda: points.diagonal(1, 1, 2).sum() * x.diagonal(-1) + y.diagonal(2)[:3], [points, x, y]),
        "diagonal-scatter": (lambda: x.diagonal_scatter(y[0, :4], 1), [x, y]),
        **{f"bag-{name}": (bag, [table, above]) for name, bag in bags(table, above).items()},
        "pdist-3": (lambda: F.pdist(points[1], p=3.0), [points]),
        "cdist-general": (lambda: torch.cdist(points, others, p=1.5), [points, others]),
        "angles": (lambda: x.deg2rad() * y.rad2deg(), [x, y]),
        "frac": (lambda: wide.frac(), [wide]),
        "sinc": (lambda: x.sinc() + torch.zeros_like(x).sinc(), [x]),
        "logit": (lambda: (inside.abs() * 0.9 + 0.05).logit() + inside.logit(0.2), [inside]),
        "logaddexp2": (lambda: torch.logaddexp2(x, y), [x, y]),
        "entr": (lambda: torch.special.entr(above), [above]),
        "xlog1py": (lambda: torch.special.xlog1py(x, above) + torch.special.xlog1py(0 * x, above), [x, above]),
        "addr": (lambda: torch.addr(x, y[:, 0], slope, beta=0.5, alpha=1.5), [x, y, slope]),
        "cross": (lambda: torch.linalg.cross(points[:, :4], others, dim=-1), [points, others]),
        "renorm": (lambda: x.renorm(2, 0, 1.5) + y.renorm(1, 1, 0.5), [x, y]),
        "roll": (lambda: x.roll((1, -2), (0, 1)) + y.roll(3), [x, y]),
        "index-fill": (lambda: x.index_fill(0, index[0, :2], 0.3).index_fill(1, index[0, -1:], 0.7), [x]),
        "index-copy": (lambda: x.index_copy(0, index[0, 3:5], y[:2]), [x, y]),
        "unfold": (lambda: x.unfold(1, 3, 2), [x]),
        "take": (lambda: x.take(index), [x]),
        "narrow-copy": (lambda: torch.narrow_copy(x.detach(), 1, 2, 3) + y[:, :3], [y]),
        "one": (lambda: x[0, 0].max(0)[0] + x[1, 0].softmax(0) + y[0, 1].logsumexp(0) + x[0, 1].cumsum(0), [x, y]),
        "scatter-reduce": (lambda: x.scatter_reduce(0, index, y[:1], "sum"), [x, y]),
    }
    expressions = {name: differentiated(function, *inputs) for name, (function, inputs) in functions.items()}
    plain = x.detach()
    # Their derivatives are computed otherwise when watched: such steps are not captured.
    expressions["products"] = lambda: {
        "all": plain.prod(), "dim": plain.prod(1, keepdim=True), "running": plain.cumprod(0),
    }  # fmt: skip
    expressions["batch-norm-legit"] = lambda: {
        "batch": torch.ops.aten._native_batch_norm_legit.no_stats(plain, slope, slope, True, 0.1, 1e-5)[0].detach(),
        "running": torch.ops.aten._native_batch_norm_legit_no_training(
            plain, slope, None, slope.detach(), slope.detach().square(), 0.1, 1e-5
        )[0].detach(),
    }

    def split_copy() -> dict[str, Tensor]:
        parts = [plain.new_empty(4, 2), plain.new_empty(4, 4)]
        torch.split_with_sizes_copy(plain, [2, 4], 1, out=parts)
        return {"split": parts[0] + parts[1][:, 1:3]}

    expressions["split-copy"] = split_copy
    expressions["chunk-cat"] = lambda: {
        "chunks": torch._chunk_cat([plain[:3], plain[0], plain[:, 1]], 0, 2),
        "out": torch._chunk_cat([plain, plain[3]], 0, 4, out=plain.new_empty(4, 8)),
    }
    return expressions
