"""Every operation that the daemon models, forward and backward, watched and not: the same bits. What fails here is
published as plumbline.PERTURBING_OPS."""

import itertools
from collections.abc import Callable

import image_operations
import pytest
import torch
import torch.nn.functional as F
from interpreter import Interpreter, bits, flatten
from torch import Tensor, nn

from plumbline import PERTURBING_OPS, daemon, schema
from plumbline.encode import encode_step
from plumbline.job import open_request
from plumbline.payload import Pool
from plumbline.plan import Plan
from plumbline.step import StepCapture
from plumbline.transport import Transport

Inputs = tuple[Tensor, Tensor, Tensor]  # x [6, 8] and y [6, 8] require gradients, index [6] below 6.
Program = Callable[..., object]


def rows(*names: str, **options: object) -> dict[str, Program]:
    return {name: lambda x, y, i, name=name: getattr(torch, name)(x, **options) for name in names}


def pairs(*names: str) -> dict[str, Program]:
    return {name: lambda x, y, i, name=name: getattr(torch, name)(x, y) for name in names}


def scalars(*names: str) -> dict[str, Program]:
    return {f"{name} 3": lambda x, y, i, name=name: getattr(x, name)(3) for name in names}


def losses(x: Tensor, i: Tensor) -> list[Tensor]:
    images = x.view(2, 3, 8).unsqueeze(-1)
    return [
        F.cross_entropy(x, i, ignore_index=2),
        F.cross_entropy(x, i, reduction="sum", label_smoothing=0.1),
        F.nll_loss(F.log_softmax(images, 1), i.view(2, 3)[:, :1].expand(2, 8).unsqueeze(-1) % 3),
        F.mse_loss(x, x.detach() * 2),
        F.binary_cross_entropy_with_logits(x, (x.detach() > 0).float()),
        F.binary_cross_entropy(x.sigmoid(), (x.detach() > 0).float()),
    ]


def batch_norm(x: Tensor) -> list[Tensor]:
    mean, var, weight = torch.zeros(8), torch.ones(8), torch.ones(8, requires_grad=True)
    trained = F.batch_norm(x, mean, var, weight, torch.zeros(8), training=True)
    legit = torch.ops.aten._native_batch_norm_legit(x, weight, None, mean, var, True, 0.1, 1e-5)
    return [*legit, trained, F.batch_norm(x, mean, var, weight, None, training=False), mean, var]


def in_place(x: Tensor, y: Tensor) -> Tensor:
    z = x * 1
    z = z.add_(y).sub_(1.5).mul_(y).div_(3.0).relu_() + 0
    z = z.clamp_(max=2.0).neg_().exp_() + 0  # exp_ keeps its result for backward.
    z.addcmul_(x, y, value=0.5).addcdiv_(x, y.abs() + 1, value=0.3).lerp_(y, 0.7).lerp_(y, 0.2)
    z[2].zero_()
    z[:, 3].fill_(1.25)
    z[1:3].copy_(y[:2])
    return z.masked_fill_(x.detach() > 1, -2.0)


def foreach(x: Tensor, y: Tensor) -> list[Tensor]:
    parts, others = [x.detach()[k].clone() for k in range(3)], list(y.detach()[:3])
    torch._foreach_add_(parts, others, alpha=0.5)
    torch._foreach_mul_(parts, 1.1)
    torch._foreach_div_(parts, [1.0, 2.0, 3.0])
    torch._foreach_lerp_(parts, others, 0.3)
    torch._foreach_addcmul_(parts, others, others, 0.2)
    torch._foreach_addcdiv_(parts, others, torch._foreach_exp(others), [0.1, 0.2, 0.3])
    return [*parts, *torch._foreach_norm(parts), *torch._foreach_sqrt(torch._foreach_abs(parts))]


def optimizers(x: Tensor) -> list[Tensor]:
    out = []
    for make in (
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True),
        lambda p: torch.optim.Adam(p, 0.1, fused=True),
        lambda p: torch.optim.Adagrad(p, 0.1, fused=True),
        lambda p: torch.optim.AdamW(p, torch.tensor(0.1), fused=True),
        lambda p: torch.optim.Adam(p, torch.tensor(0.1), fused=True),
        lambda p: torch.optim.SGD(p, torch.tensor(0.1), momentum=0.9, fused=True),
        lambda p: torch.optim.AdamW(p, 0.1, fused=True),
    ):
        weight = nn.Parameter(x.detach().clone())
        weight.grad = x.detach() * 0.3
        optimizer = make([weight])
        for _ in range(2):
            optimizer.step()
        out.append(weight.detach())
    return out


def scaler(x: Tensor) -> list[Tensor]:
    weight = nn.Parameter(x.detach().clone())
    optimizer = torch.optim.SGD([weight], 0.1)
    scale = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
    for _ in range(2):
        scale.scale((weight * weight).sum()).backward()
        scale.step(optimizer)
        scale.update()
    return [weight.detach(), torch.tensor(scale.get_scale())]


def attention(x: Tensor, y: Tensor) -> list[Tensor]:
    q, k = x.view(1, 2, 6, 4), y.view(1, 2, 6, 4)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    return [
        F.scaled_dot_product_attention(q, k, k, is_causal=True),
        F.scaled_dot_product_attention(q, k, k, attn_mask=mask),
    ]


def indexing(x: Tensor, y: Tensor, i: Tensor) -> list[Tensor]:
    wide = i.unsqueeze(1).expand(6, 8)
    return [
        F.embedding(i, x),
        F.embedding(i, x, padding_idx=1),
        x.index_select(0, i),
        x.gather(0, wide),
        x.scatter_add(0, wide, y),
        x.scatter(0, wide % 2, y.detach()),
        x.scatter(0, wide, 2.0),
        x.index_add(0, i, y),
        x[i],
        x[i, i],
        x.index_put((i,), y, accumulate=True),
        *(F.embedding_bag(i, x, torch.tensor([0, 4]), mode=mode) for mode in ("sum", "mean", "max")),
        F.embedding_bag(i, x, torch.tensor([0, 4]), per_sample_weights=y[0, :6], mode="sum"),
        F.embedding_bag(i, x.detach(), torch.tensor([0, 4])),
        torch.ops.aten._unsafe_index(x, [i]),
        torch.ops.aten._unsafe_index_put(x, [i], y, True),
        torch.ops.aten._index_put_impl(x, [i], y, True),
    ]


def movement(x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        x.clone(),
        x.to(torch.bfloat16),
        x.double(),
        x.t().contiguous(),
        x.t().reshape(-1),
        torch.cat([x, y], 1),
        torch.stack([x, y]),
        x[1:3],
        x[2],
        x[:, ::2],
        torch.slice_scatter(x, y[:2], 0, 0, 2),
        torch.select_scatter(x, y[0], 0, 1),
        F.pad(x, (1, 2)),
        x.repeat(2, 3),
        x.tril(),
        x.triu(1),
        x.roll(1, 0),
        x.unfold(0, 2, 2),
        torch.ops.aten.view_copy(x, [8, 6]),
        torch.ops.aten._reshape_copy(x, [8, 6]),
        torch.ops.aten._unsafe_view(x, [8, 6]),
        torch.ops.aten.copy(x.detach(), y.detach()),
        torch._weight_norm(x, y[:, :1], 0),
        F.pixel_shuffle(x.view(3, 4, 2, 2), 2),
        F.pixel_unshuffle(x.view(2, 4, 6), 2),
        x.expand(2, 6, 8).sum(0),
        torch.einsum("ij,kj->ik", x, y),
    ]


def factories(x: Tensor) -> list[Tensor]:
    return [
        torch.zeros(3),
        torch.ones(3),
        torch.zeros_like(x),
        torch.ones_like(x),
        x.new_zeros(3),
        x.new_ones(3),
        torch.full((3,), 2.5),
        torch.full_like(x, 2.5),
        x.new_full((3,), 2.5),
        torch.scalar_tensor(2.5),
        torch.arange(5),
        torch.arange(1, 5),
        torch.arange(1.0, 5.0, 0.5),
        torch.linspace(0, 1, 7),
        torch.eye(3),
        torch.eye(3, 4),
        torch.ops.aten.fill(x, 2.0),
        torch.ops.aten.zero(x),
        torch.ops.aten.fill(x, torch.tensor(2.0)),
        torch.zeros(3).fill_(torch.tensor(1.5)),
    ]


def products(x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        x @ y.t(),
        torch.bmm(x.view(2, 3, 8), y.view(2, 8, 3)),
        F.linear(x, y, x[:, 0]),
        torch.ops.aten.linear.out(x.detach(), y.detach(), out=torch.empty(6, 6, dtype=x.dtype)),
        F.linear(x.view(2, 3, 8), y, x[:, 0]),
        torch.baddbmm(x.view(2, 3, 8)[:, :, :3], x.view(2, 3, 8), y.view(2, 8, 3), alpha=0.5),
        x @ y[0],
        torch.addmv(x[:, 0], x, y[0]),
        torch.dot(x[0], y[0]),
        torch.vdot(x[0], y[0]),
        torch.addmm(x[:, :6], x, y.t(), beta=0.5),
    ]


def reductions(x: Tensor) -> list[Tensor]:
    out = [x.sum(), x.sum(1), x.mean(), x.mean(0), x.amax(1), x.amin(1), x.max(), x.min()]
    out += [x.logsumexp(1), *torch.aminmax(x), *torch.aminmax(x, dim=1)]
    out += [*x.max(1), *x.min(1), x.argmax(1), x.argmin(), x.cumsum(1), x.norm(), x.norm(dim=1), x.norm(p=1)]
    out += [x.var(), x.var(1), x.std(), x.std(1), *torch.var_mean(x, 1), *torch.std_mean(x, 1), *torch.var_mean(x)]
    out += [x.var(1, correction=0), *torch.std_mean(x), torch.linalg.vector_norm(x, dim=1)]
    out += [(x > 0).any(), (x > 0).all(), (x > 0).any(1), (x > 0).all(1), (x > 0).any((0, 1)), (x > 0).all((0, 1))]
    out += [torch.ops.aten.norm.Scalar(x), torch.ops.aten.norm.ScalarOpt_dtype(x, 2, dtype=torch.float32)]
    out += [torch.ops.aten.norm.ScalarOpt_dim_dtype(x, 2, [1], False, dtype=torch.float32)]
    return out


def bitwise(x: Tensor, y: Tensor) -> list[Tensor]:
    a, b = x > 0, y > 0
    logical = [torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_not(a), torch.logical_xor(a, b)]
    classes = [torch.isnan(x), torch.isinf(x), torch.isfinite(x)]
    return [~a, a & b, a | b, a ^ b, torch.ops.aten.__and__(a, b), torch.ops.aten.__or__(a, b), *logical, *classes]


def pieces(x: Tensor, y: Tensor) -> list[Tensor]:
    """Activations and losses that are put together of pieces."""
    activations = [F.elu(x), F.celu(x), F.glu(x), F.hardshrink(x), F.softshrink(x), F.hardsigmoid(x), F.hardswish(x)]
    return [
        *activations,
        F.prelu(x, y[0, :1]),
        F.huber_loss(x, y.detach()),
        F.smooth_l1_loss(x, y.detach()),
        torch.xlogy(x, y.detach().abs() + 0.1),
        torch.logaddexp(x, y),
    ]


def functions(x: Tensor) -> list[Tensor]:
    small, positive = x.detach().tanh() * 0.9, x.detach().abs() + 0.1
    out = [f(positive) for f in (torch.log2, torch.log10, torch.exp2, torch.sinh, torch.cosh, torch.asinh)]
    out += [small.asin(), small.acos(), torch.special.erfc(x)]
    return [*out, torch.acosh(positive + 1), torch.atanh(small), torch.tan(small)]


def margins(x: Tensor) -> list[Tensor]:
    planes, cubes = x.view(1, 2, 4, 6), x.view(1, 2, 2, 3, 4)
    out = [F.pad(x, (1, 2), mode) for mode in ("reflect", "replicate")]
    out += [F.pad(planes, (1, 2, 1, 0), mode) for mode in ("reflect", "replicate")]
    out += [F.pad(cubes, (1, 2, 1, 0, 1, 1), mode) for mode in ("reflect", "replicate")]
    columns = F.unfold(planes, (2, 3))
    return [*out, columns, F.fold(columns, (4, 6), (2, 3)), F.interpolate(planes, scale_factor=1.5, mode="bicubic")]


def numbers(x: Tensor) -> Tensor:
    return x * x.detach()[0, 0].item()


def special(x: Tensor, y: Tensor, i: Tensor) -> list[Tensor]:
    plain, inside = x.detach(), y.detach().sigmoid() * 0.8 + 0.1
    return [
        *(x.deg2rad(), x.rad2deg(), x.frac(), x.sinc(), torch.logaddexp2(x, y), torch.special.entr(x.abs() + 0.1)),
        *(inside.logit(0.2), (x.sigmoid() * 0.8 + 0.1).logit(), torch.special.xlog1py(y, x.abs())),
        *(torch.addr(x, y[:, 0], y[0]), torch.linalg.cross(x[:, :3], y[:, :3]), x.renorm(2, 0, 1.0)),
        *(x.index_fill(0, i[:2], 0.3), plain.index_copy(0, torch.arange(2), y.detach()[:2]), x.unfold(1, 3, 2)),
        *(x.take(i), plain.put(i, y.detach()[0, :6]), torch.narrow_copy(plain, 1, 2, 3), ~i),
    ]


def counted(x: Tensor, y: Tensor, i: Tensor) -> list[Tensor]:
    """Integers that count and repeat, and what is written on a diagonal."""
    diagonal = x.diagonal_scatter(y[:, 0])
    return [
        *(*x.nanmedian(1), *y.mode(1), *torch.unique(x.detach().round(), True, True, True), i.unique()),
        *(*torch.unique_consecutive(i, True, True), i.unique_consecutive(dim=0)),
        *(torch.nonzero_static(x.detach() > 0, size=9), torch.ops.aten._unique(i, True, True)[1]),
        *(i.bincount(minlength=8), y.repeat_interleave(2, 0), torch.repeat_interleave(i)),
        *(torch.tril_indices(4, 5), torch.triu_indices(4, 5, 1), diagonal, x.diagonal(1) * 2.0),
        torch.ops.aten.diagonal_backward(y.detach()[0, :5], [6, 5], 0, 0, 1),
    ]


PROGRAMS: dict[str, Program] = {
    **rows("neg", "abs", "sign", "sgn", "exp", "expm1", "reciprocal", "sin", "cos", "erf", "floor", "ceil", "round"),
    **rows("trunc", "square", "relu", "tanh", "sigmoid", "atan"),
    **pairs("add", "sub", "rsub", "mul", "div", "remainder", "fmod", "maximum", "minimum"),
    **pairs("max", "min", "atan2", "lt", "le", "gt", "ge", "eq", "ne"),
    **scalars("add", "sub", "mul", "div", "remainder", "fmod", "lt", "le", "gt", "ge", "eq", "ne"),
    "floor_divide": lambda x, y, i: [x.detach() // y.detach(), x.detach() // 3],
    "positive": lambda x, y, i: [f(x.abs() + 0.1) for f in (torch.log, torch.log1p, torch.sqrt, torch.rsqrt)],
    "pow": lambda x, y, i: [x**2, x**3, (x.abs() + 1) ** 0.5, (x.abs() + 1) ** 1.7, (x.abs() + 1) ** y, 2.0**y],
    "rsub scalar": lambda x, y, i: [1 - x, 2.0 / x, torch.div(x, y, rounding_mode="floor"),
                                    torch.div(x, 2, rounding_mode="trunc")],
    "fake_quantize": lambda x, y, i: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
    "sharding": lambda x, y, i: [*torch.split_with_sizes_copy(x, [3, 5], 1),
                                 torch._chunk_cat([x.detach(), y.detach()[0]], 0, 2)],
    "clamp": lambda x, y, i: [x.clamp(-1, 1), x.clamp(y - 1, y + 1), x.clamp_min(0), x.clamp_max(0),
                              x.clamp_min(y), x.clamp_max(y)],
    "lerp": lambda x, y, i: [x.lerp(y, 0.3), x.lerp(y, 0.7), x.lerp(y, y)],
    "addcmul": lambda x, y, i: [x.addcmul(y, y, value=0.5), x.addcdiv(y, x.detach().abs() + 1, value=0.5)],
    "where": lambda x, y, i: [torch.where(x > 0, x, y), torch.where(x > 0, x, 0.5), torch.where(x > 0, 0.5, x),
                              torch.where(x > 0, 1.0, 2.0)],
    "masked_fill": lambda x, y, i: [x.masked_fill(y > 0, -1.0), x.masked_fill(y > 0, torch.tensor(-2.0))],
    "activations": lambda x, y, i: [F.leaky_relu(x), F.threshold(x, 0.1, 0.2), F.hardtanh(x), F.gelu(x), F.silu(x),
                                    F.gelu(x, approximate="tanh"), F.logsigmoid(x), F.softplus(x), F.relu6(x)],
    "softmax": lambda x, y, i: [x.softmax(1), x.log_softmax(0), torch.ops.aten._safe_softmax(x, 1)],
    "convolution": lambda x, y, i: image_operations.convolutions(x, y),
    "pooling": lambda x, y, i: image_operations.pooling(x),
    "resampling": lambda x, y, i: image_operations.resampling(x),
    "choices": lambda x, y, i: image_operations.choices(x),
    "grouped": lambda x, y, i: image_operations.grouped(x, y),
    "recurrent": lambda x, y, i: image_operations.recurrent(x, y),
    "layer_norm": lambda x, y, i: [F.layer_norm(x, (8,), y[0], y[1]), F.layer_norm(x, (8,)), F.rms_norm(x, (8,), y[0]),
                                    torch.ops.aten._fused_rms_norm(x, [8], y[0], 1e-5)[0]],
    "dropout": lambda x, y, i: [F.dropout(x, 0.3), *(torch.native_dropout(x, p, True)[0] for p in (0.3, 1.0)),
                                *torch.native_dropout(y, 0.3, False)],
    "losses": lambda x, y, i: losses(x, i),
    "batch_norm": lambda x, y, i: batch_norm(x),
    "in place": lambda x, y, i: in_place(x, y),
    "foreach": lambda x, y, i: foreach(x, y),
    "optimizers": lambda x, y, i: optimizers(x),
    "scaler": lambda x, y, i: scaler(x),
    "attention": lambda x, y, i: attention(x, y),
    "indexing": lambda x, y, i: indexing(x, y, i),
    "movement": lambda x, y, i: movement(x, y),
    "factories": lambda x, y, i: factories(x),
    "products": lambda x, y, i: products(x, y),
    "reductions": lambda x, y, i: reductions(x),
    "bitwise": lambda x, y, i: bitwise(x, y),
    "pieces": lambda x, y, i: pieces(x, y),
    "functions": lambda x, y, i: functions(x),
    "margins": lambda x, y, i: margins(x),
    "numbers": lambda x, y, i: numbers(x),
    "cdist": lambda x, y, i: torch.cdist(x.float(), y.float(), p=1.0),
    "distances by a product": lambda x, y, i: torch.cdist(x.float(), y.float(), 2.0, "use_mm_for_euclid_dist"),
    "pdist": lambda x, y, i: F.pdist(x),
    "masks": lambda x, y, i: [x.masked_scatter(y > 0, y), x.masked_select(y > 0), (x > 0).nonzero()],
    "logcumsumexp": lambda x, y, i: x.logcumsumexp(1),
    "scatter_reduce": lambda x, y, i: x.detach().scatter_reduce(0, i.unsqueeze(1).expand(6, 8), y.detach(), "sum"),
    "dropout backward": lambda x, y, i: torch.ops.aten.native_dropout_backward(x.detach(), y.detach() > 0, 1.5),
    "batch_norm inference": lambda x, y, i: torch.ops.aten._native_batch_norm_legit_no_training(
        x.detach(), None, None, torch.zeros(8, dtype=x.dtype), torch.ones(8, dtype=x.dtype), 0.1, 1e-5)[0],
    "special": lambda x, y, i: special(x, y, i),
    "counted": lambda x, y, i: counted(x, y, i),
    "perturbing": lambda x, y, i: [x.detach().prod(), x.detach().cumprod(0)],
    "copies": lambda x, y, i: copies(x, y),
    "signs": lambda x, y, i: signs(x, y),
    "ranks": lambda x, y, i: ranks(x, y, i),
    "gamma": lambda x, y, i: gamma(x, y),
    "bessel": lambda x, y, i: bessel(x),
    "polynomials": lambda x, y, i: [f(x.detach().float(), i[:1].float()) for f in POLYNOMIALS],
    "matrices": lambda x, y, i: matrices(x, y),
}  # fmt: skip


def copies(x: Tensor, y: Tensor) -> list[Tensor]:
    ops = torch.ops.aten
    return [
        *(
            torch.alias_copy(x),
            torch.detach_copy(x.detach()),
            ops.lift_fresh_copy(x.detach()),
            torch.expand_copy(x[:1], (3, 8)),
        ),
        *(torch.squeeze_copy(x[None]), torch.unsqueeze_copy(x, 0), torch.permute_copy(x, (1, 0)), torch.t_copy(x)),
        *(torch.transpose_copy(x, 0, 1), torch.select_copy(x, 0, 1), torch.slice_copy(x, 0, 1, 3)),
        *(torch.diagonal_copy(x), *torch.unbind_copy(x), torch.unfold_copy(x, 1, 2, 2), torch.diag_embed(y)),
        *(x.trace(), torch.block_diag(x, y[0]), x.rot90(), F.channel_shuffle(x.view(1, 6, 8), 2)),
        ops.native_channel_shuffle(x.detach().view(1, 6, 8), 2),
        ops._unsafe_masked_index(x, y > 0, [torch.arange(6)[:, None], torch.arange(8)], 0.5),
        ops._efficientzerotensor([2]) if x.dtype == torch.float32 else y.sum(),
    ]


def signs(x: Tensor, y: Tensor) -> list[Tensor]:
    plain = x.detach()
    return [
        *(plain.signbit(), torch.copysign(x, y.detach()), torch.isposinf(plain), torch.isneginf(plain), x.nan_to_num()),
        *(torch.fmax(x, y), torch.fmin(x, y), torch.heaviside(plain, y.detach()), torch.hypot(x, y)),
        *(torch.ldexp(x, torch.ones(8, dtype=torch.int64)), plain.angle(), plain.round(decimals=1)),
        *(x.nansum(1), (plain > 0).count_nonzero(), torch.dist(x, y), torch.isin(plain, y.detach())),
    ]


def ranks(x: Tensor, y: Tensor, i: Tensor) -> list[Tensor]:
    pooled, places = F.max_pool2d(x.view(1, 1, 6, 8), 2, return_indices=True)
    deep, depths = F.max_pool3d(x.view(1, 1, 2, 3, 8).float(), (1, 1, 2), return_indices=True)
    return [
        *(x.kthvalue(2, 1)[0], x.median(1)[0], x.median(), x.cummax(1)[0], y.cummin(0)[0]),
        *(F.max_unpool2d(pooled, places, 2), F.max_unpool3d(deep, depths, (1, 1, 2))),
        *(F.soft_margin_loss(x, y.detach().sign()), F.multi_margin_loss(x, i)),
        F.bilinear(x, y, torch.ones(2, 8, 8, dtype=x.dtype)),
        nn.utils.rnn.pack_padded_sequence(x.view(2, 3, 8), torch.tensor([3, 2]), True).data,
        F.affine_grid(x.view(8, 2, 3), [8, 1, 4, 4], align_corners=False),
        *(torch.ops.aten._is_all_true(x > 0), torch.ops.aten._is_any_true(x > 0)),
        torch.addbmm(x[:2, :2], x.view(4, 2, 6), y.view(4, 6, 2)),
    ]


def gamma(x: Tensor, y: Tensor) -> list[Tensor]:
    positive, small = x.detach().abs() + 2, (y * 0.3).tanh()
    functions = [f(positive) for f in (torch.lgamma, torch.digamma, lambda t: torch.polygamma(2, t))]
    special = torch.special
    return [
        *(*functions, torch.mvlgamma(positive, 2), small.erfinv(), special.ndtri(small.detach().abs())),
        *(special.zeta(positive, positive), special.erfcx(x.detach()), special.log_ndtr(x)),
    ]


def bessel(x: Tensor) -> list[Tensor]:
    special, plain = torch.special, x.detach().float()
    positive = plain.abs() + 0.1
    first = [special.bessel_j0(plain), special.bessel_j1(plain), special.spherical_bessel_j0(plain)]
    modified = [special.modified_bessel_i0(plain), special.modified_bessel_i1(plain)]
    second = [special.modified_bessel_k0(positive), special.modified_bessel_k1(positive)]
    scaled = [special.scaled_modified_bessel_k0(positive), special.scaled_modified_bessel_k1(positive)]
    return [x.i0(), special.i0e(x), special.i1(x), special.i1e(x), *first, *modified, *second, *scaled]


POLYNOMIALS = [
    getattr(torch.special, f"{name}polynomial_{kind}")
    for name, kinds in (("chebyshev_", "tuvw"), ("shifted_chebyshev_", "tuvw"))
    for kind in kinds
] + [
    *(torch.special.hermite_polynomial_h, torch.special.hermite_polynomial_he),
    *(torch.special.laguerre_polynomial_l, torch.special.legendre_polynomial_p),
]


def matrices(x: Tensor, y: Tensor) -> list[Tensor]:
    square = x[:, :6] @ x[:, :6].T + 6 * torch.eye(6, dtype=x.dtype)
    lower, linalg = torch.linalg.cholesky(square), torch.linalg
    return [
        *(lower, linalg.solve_triangular(lower, y, upper=False), linalg.solve(square, y), linalg.inv(square)),
        *(linalg.det(square), *linalg.slogdet(square), *linalg.qr(x[:, :4]), *linalg.lu(square)),
        *(linalg.eigvalsh(square), linalg.svdvals(x), linalg.pinv(x[:, :3]), linalg.lstsq(square, y).solution),
    ]


def spectra(x: Tensor, y: Tensor) -> list[Tensor]:
    product = torch.fft.rfft(x) * torch.fft.rfft(y)
    return [torch.fft.irfft(product, n=8), torch.fft.fft2(x).abs(), torch.fft.hfft(product)]


def autocast(x: Tensor, y: Tensor) -> list[Tensor]:
    """Operations in whose kernels autocast applies to others."""
    with torch.autocast("cpu", torch.bfloat16):
        grid = F.affine_grid(x.float().view(8, 2, 3), [8, 1, 4, 4], align_corners=False)
        inner = F.bilinear(x, y, torch.ones(2, 8, 8, dtype=x.dtype))
        with torch.autocast("cpu", enabled=False):
            return [
                grid,
                inner,
                F.bilinear(x, y, torch.ones(2, 8, 8, dtype=x.dtype)),
                x @ y.T,
                torch.linalg.pinv(x.float()),
            ]


FORMATS = (torch.float32, torch.bfloat16, torch.float64)


def inputs(dtype: torch.dtype, seed: int) -> Inputs:
    draw = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(6, 8, generator=draw).to(dtype).requires_grad_() for _ in range(2))
    return x, y, torch.randint(0, 6, (6,), generator=draw)


def run(program: Program, x: Tensor, y: Tensor, i: Tensor) -> list[Tensor]:
    """Outputs, then gradients of x and y."""
    torch.manual_seed(11)
    outputs = [out for out in flatten(program(x, y, i)) if isinstance(out, Tensor)]
    roots = [out for out in outputs if out.requires_grad]
    if not roots:
        return outputs
    grads = [torch.linspace(0.5, 1.5, root.numel()).view(root.shape).to(root.dtype) for root in roots]
    found = torch.autograd.grad(roots, (x, y), grads, allow_unused=True)
    return outputs + [grad for grad in found if grad is not None]


def watched(program: Program, values: Inputs) -> tuple[list[Tensor], StepCapture]:
    capture = StepCapture(Plan(), Pool())
    with capture:
        results = run(program, *values)
    return results, capture


@pytest.mark.parametrize(("name", "dtype"), list(itertools.product(PROGRAMS, FORMATS)), ids=str)
def test_bits(name: str, dtype: torch.dtype) -> None:
    program = PROGRAMS[name]
    try:
        expected = run(program, *inputs(dtype, 5))
    except RuntimeError as error:
        assert dtype != torch.float32, error  # PyTorch has not every operation in every format.
        return
    found, capture = watched(program, inputs(dtype, 5))
    assert capture.failure is None
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(bits(mine), bits(theirs))
    Interpreter(encode_step(capture.records, 0))


@pytest.mark.parametrize("program", [spectra, autocast])
def test_bits_of_what_is_not_run_again(program: Callable[[Tensor, Tensor], list[Tensor]]) -> None:
    """Complex numbers, and what autocast does within an operation, are nothing that the trace's interpreter runs."""

    def both(x: Tensor, y: Tensor, i: Tensor) -> list[Tensor]:
        return [torch.view_as_real(out) if out.is_complex() else out for out in program(x, y)]

    expected = run(both, *inputs(torch.float32, 5))
    found, capture = watched(both, inputs(torch.float32, 5))
    assert capture.failure is None
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(bits(mine), bits(theirs))


def several_zeros(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
    """Of several zeros the derivative is 0 unwatched, and -0 here and there otherwise."""
    return (x * (i.view(6, 1) > 2)).prod()


@pytest.mark.parametrize(
    "program", [several_zeros, lambda x, y, i: x.masked_fill(i.view(6, 1) > 2, y[0, 0])], ids=["prod", "masked_fill"]
)
def test_perturbing_operations_end_the_capture(program: Program) -> None:
    expected = run(program, *inputs(torch.float32, 5))
    found, capture = watched(program, inputs(torch.float32, 5))
    assert capture.failure is not None
    assert capture.failure.reason == "perturbing_op"
    assert capture.records == []
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(bits(mine), bits(theirs))


def test_the_list_of_exceptions_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the list, the gradients of these change: the sweep would see it."""
    monkeypatch.setattr(schema, "PERTURBING_OPS", {})
    for program in (lambda x, y, i: x.prod(1), lambda x, y, i: x.masked_fill(i.view(6, 1) > 2, y[0, 0])):
        differ = False
        for seed in range(20):
            expected = run(program, *inputs(torch.float32, seed))
            found, capture = watched(program, inputs(torch.float32, seed))
            assert capture.failure is None
            differ |= any(not torch.equal(bits(a), bits(b)) for a, b in zip(found, expected, strict=True))
        assert differ


def test_every_lowered_operation_is_swept() -> None:
    """What the daemon says it models, up to in-place, out and foreach forms, is in the programs above."""
    with daemon.private() as address:
        request = open_request("sweep", "sweep", "sweep", 0, None, False, None, None)
        transport = Transport(address, request, print, print, print)
        assert transport.wait_open(10)
        assert transport.plan is not None
        lowered = transport.plan.lowered
        transport.close(1)
    assert lowered
    seen = {name.split("::")[1].split(".")[0] for name in PERTURBING_OPS}
    for program in PROGRAMS.values():
        _, capture = watched(program, inputs(torch.float32, 5))
        seen |= {base(record[1].name) for record in capture.records if record[0] == "op"}
    missing = {base(name) for name in lowered if sent(name)} - seen
    assert not missing, sorted(missing)


def base(name: str) -> str:
    name = name.split("::")[1].split(".")[0].removeprefix("_foreach_")
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


# Watched in test_cuda_attention.py, since it raises without a device's own, and in test_fused_products.py.
_ELSEWHERE = (*(f"_scaled_dot_product_fused_attention_overrideable{of}" for of in ("", "_backward")), "_scaled_mm")
_COMPOSITE = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def sent(name: str) -> bool:
    """Whether this PyTorch has the operation, and it comes to a dispatch mode as itself on a processor: not one that is
    made of others, nor one that only views or reads a number, nor one that only other devices have (those are watched
    in tests/client/test_cuda_*.py)."""
    operation, _, overload = name.split("::")[1].partition(".")
    func = getattr(getattr(torch.ops.aten, operation, None), overload, None)
    return (
        func is not None
        and not schema.OperatorInfo(func).composite
        and any(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key) for key in ("CPU", *_COMPOSITE))
        and operation not in ("_unsafe_view", "_local_scalar_dense", *_ELSEWHERE)
    )
