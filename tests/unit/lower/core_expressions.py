"""Activations, losses, functions, running products and distances with their gradients."""

import torch
import torch.nn.functional as F
from image_expressions import Expression, differentiated
from torch import Tensor


def core_expressions(dtype: torch.dtype = torch.float64, seed: int = 3) -> dict[str, Expression]:
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return (2 * torch.randn(*shape, generator=draw)).to(dtype).requires_grad_()

    def uniform(low: float, high: float) -> Tensor:
        return (low + (high - low) * torch.rand(4, 6, generator=draw)).to(dtype).requires_grad_()

    x, y, slope, wide = normal(4, 6), normal(4, 6), normal(6), normal(4, 6).detach().mul(8).requires_grad_()
    above, inside, beyond = uniform(0.2, 3), uniform(-0.9, 0.9), uniform(1.1, 4)
    points, others = normal(2, 5, 3), normal(2, 4, 3)
    index = torch.tensor([[0, 1, 1, 3, 2, 0]])
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
        "acosh": (lambda: beyond.acosh(), [beyond]),
        "atanh": (lambda: inside.atanh(), [inside]),
        "logaddexp": (lambda: torch.logaddexp(x, y), [x, y]),
        "logcumsumexp": (lambda: x.logcumsumexp(1), [x]),
        "cdist": (lambda: torch.cdist(points, others), [points, others]),
        "cdist-1": (lambda: torch.cdist(points, others, p=1.0), [points, others]),
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
