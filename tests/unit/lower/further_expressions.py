"""Copies of views, signs, missing numbers, ranks, reductions by index and special functions, with their gradients."""

import torch
import torch.nn.functional as F
from image_expressions import Expression, differentiated
from torch import Tensor, nn


def further_expressions(dtype: torch.dtype = torch.float64, seed: int = 3) -> dict[str, Expression]:
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return (2 * torch.randn(*shape, generator=draw)).to(dtype).requires_grad_()

    x, y, cube, vector = normal(4, 6), normal(4, 6), normal(2, 3, 4), normal(5)
    slope, square = normal(3, 1, 1), normal(2, 4, 4)
    inside = (1.8 * torch.rand(4, 6, generator=draw) - 0.9).to(dtype).requires_grad_()
    above = (0.2 + 8 * torch.rand(4, 6, generator=draw)).to(dtype).requires_grad_()
    holes = torch.where(y.detach() > 1, torch.nan, x.detach()).requires_grad_()
    index = torch.tensor([[0, 1, 1, 3, 2, 0], [2, 1, 0, 0, 2, 3]])
    rows, labels = torch.tensor([2, 0, 2]), torch.tensor([1, 4, 0, 5])
    plain, mask = x.detach(), x.detach().sign()
    edges = torch.sparse_coo_tensor(torch.tensor([[0, 0, 2, 3], [1, 3, 0, 3]]), plain[0, :4], (4, 4))
    functions = {
        "sparse-product": (lambda: torch.sparse.mm(edges, x).square() + edges @ y, [x, y]),
        "sparse-sum": (lambda: torch.sparse.addmm(y, edges, x, beta=0.5, alpha=-1.5), [x, y]),
        "expand-copy": (lambda: torch.expand_copy(x[:, :1], (4, 6)) * y, [x, y]),
        "permute-copy": (lambda: torch.permute_copy(cube, (2, 0, 1)) * torch.transpose_copy(cube, 0, 2).mT, [cube]),
        "shape-copies": (lambda: torch.t_copy(x) * torch.squeeze_copy(torch.unsqueeze_copy(y, 1), 1).t(), [x, y]),
        "cut-copies": (
            lambda: torch.select_copy(x, 0, 2) * torch.slice_copy(y, 0, 1, 4, 2)[0] * torch.unbind_copy(x, 0)[3],
            [x, y],
        ),
        "unfold-copy": (lambda: torch.unfold_copy(x, 1, 3, 2), [x]),
        "diagonals": (lambda: torch.diag_embed(cube, 1, 0, 2).sum(1) + torch.diagonal_copy(cube).sum(), [cube]),
        "trace": (lambda: x.trace() * y[0], [x, y]),
        "blocks": (lambda: torch.block_diag(x, vector, cube[0], vector[0]), [x, vector, cube]),
        "channel-shuffle": (lambda: F.channel_shuffle(x.view(1, 4, 6), 2).square(), [x]),
        "rotated": (lambda: x.rot90() * y.rot90(3, (1, 0)) + x.rot90(2).mT, [x, y]),
        "distance": (lambda: torch.dist(x, y) * torch.dist(x, y[0], 1) + torch.dist(x, y, float("inf")), [x, y]),
        "masked-reads": (
            lambda: torch.ops.aten._unsafe_masked_index(x, index[:, :4] < 2, [index[:, :4] + 1, index[:, 2:] - 1], 0.5),
            [x],
        ),
        "affine-grid": (lambda: F.affine_grid(cube.view(2, 2, 6)[..., :3], [2, 1, 3, 4], align_corners=False), [cube]),
        "affine-grid-3": (lambda: F.affine_grid(cube[:1], [1, 1, 2, 3, 4], align_corners=True), [cube]),
        "packed": (lambda: nn.utils.rnn.pack_padded_sequence(cube, torch.tensor([3, 2]), True).data.square(), [cube]),
        "copysign": (lambda: torch.copysign(x, y) + torch.copysign(y, -1.5), [x, y]),
        "nan-to-num": (lambda: holes.nan_to_num(0.5) * (x / 0.0).detach().nan_to_num(posinf=3.0, neginf=-2.0), [holes]),
        "fmax": (lambda: torch.fmax(holes, y) + torch.fmin(x, holes), [x, y, holes]),
        "hypot": (lambda: torch.hypot(x, y) + torch.hypot(x, x * 0), [x, y]),
        "ldexp": (lambda: torch.ldexp(x, index[0]), [x]),
        "round-decimals": (lambda: x.detach().round(decimals=1) * y + y.detach().round(decimals=-1), [y]),
        "nansum": (lambda: holes.nansum(1) * x.nansum() + holes.nanmean(1), [x, holes]),
        "kth": (lambda: x.kthvalue(2, 0)[0] * y.kthvalue(4, 1, keepdim=True)[0], [x, y]),
        "median": (lambda: x.median(1)[0] * y.median(0, keepdim=True)[0][:, :4] + x.median(), [x, y]),
        "cummax": (lambda: x.cummax(1)[0] + y.cummin(0)[0], [x, y]),
        **{
            f"scatter-{how}{'' if own else '-others'}": (
                lambda how=how, own=own: x.scatter_reduce(0, index, y[:2], how, include_self=own), [x, y],
            )
            for how in ("sum", "mean", "amax", "amin", "prod") for own in (True, False)
        },
        **{
            f"rows-{how}": (lambda how=how: x.index_reduce(0, rows, y[:3], how), [x, y])
            for how in ("mean", "amax", "amin", "prod")
        },
        "unpool": (
            lambda: F.max_unpool2d(*F.max_pool2d(x[None, None], 2, return_indices=True), 2) * y,
            [x, y],
        ),
        "soft-margin": (
            lambda: F.soft_margin_loss(x, y.detach().sign()) + F.soft_margin_loss(y, mask, reduction="none"),
            [x, y],
        ),
        "multi-margin": (
            lambda: (
                F.multi_margin_loss(x, labels)
                + F.multi_margin_loss(y, labels, p=2, margin=0.7, weight=inside.detach()[0].abs(), reduction="none")
            ),
            [x, y],
        ),
        "products-of-three": (
            lambda: F.bilinear(x, y, x.detach()[0] * slope + torch.zeros(6, 1, dtype=dtype)),
            [x, y, slope],
        ),
        "batch-sum": (lambda: torch.addbmm(x[:3, :4], cube, square, beta=0.5, alpha=1.5), [x, cube, square]),
        "empty-batch-sum": (lambda: torch.addbmm(x[:3, :4], cube[..., :0], square[:, :0, :], beta=0.5) * 2, [x]),
        "mode": (lambda: x.mode(1).values + y.mode(1, True)[0].sum(), [x, y]),
        "median-of-numbers": (lambda: holes.nanmedian(1).values * holes.nanmedian(0, True)[0].sum(), [holes]),
        "put-nothing": (lambda: x.put(rows[:0], y[0, :0]) * 2, [x]),
        "lgamma": (lambda: above.lgamma() + x.lgamma(), [x, above]),
        "digamma": (lambda: above.digamma() * y, [above, y]),
        "mvlgamma": (lambda: (above + 2).mvlgamma(3), [above]),
        "polygamma": (lambda: torch.polygamma(1, above) + torch.polygamma(2, above + 1), [above]),
        "erfinv": (lambda: inside.erfinv(), [inside]),
    }  # fmt: skip
    if dtype in (torch.float64, torch.float32):  # Of narrower elements the series are added up in their own format.
        functions |= {
            "bessel": (lambda: torch.i0(x) * torch.special.i0e(y) + torch.i0(30 * above.detach()).log(), [x, y]),
            "bessel-1": (lambda: torch.special.i1(x) + torch.special.i1e(y), [x, y]),
            "zeta": (lambda: torch.special.zeta(above.detach() + 1.2, above) * y, [above, y]),
            "erfcx": (lambda: torch.special.erfcx(x) + torch.special.erfcx(2 * y.abs()), [x, y]),
            "normal": (lambda: torch.special.log_ndtr(2 * x) + torch.special.ndtri(inside.abs()), [x, inside]),
        }
    expressions = {name: differentiated(function, *inputs) for name, (function, inputs) in functions.items()}
    degrees = torch.arange(6).to(dtype)
    special = torch.special
    polynomials = (
        *(special.chebyshev_polynomial_t, special.chebyshev_polynomial_u, special.chebyshev_polynomial_v),
        *(special.chebyshev_polynomial_w, special.shifted_chebyshev_polynomial_t),
        *(special.shifted_chebyshev_polynomial_u, special.shifted_chebyshev_polynomial_v),
        *(special.shifted_chebyshev_polynomial_w, special.hermite_polynomial_h, special.hermite_polynomial_he),
        *(special.laguerre_polynomial_l, special.legendre_polynomial_p),
    )
    if dtype in (torch.float64, torch.float32):
        expressions["polynomials"] = lambda: {f.__name__: f(inside.detach(), degrees) for f in polynomials}
        expressions["bessel-others"] = lambda: {
            **({"j0": special.bessel_j0(plain), "j1": special.bessel_j1(plain * 5)} if dtype == torch.float32 else {}),
            "k0": special.modified_bessel_k0(above.detach()), "k1": special.modified_bessel_k1(above.detach()),
            "k0-scaled": special.scaled_modified_bessel_k0(above.detach()),
            "k1-scaled": special.scaled_modified_bessel_k1(above.detach()),
            "spherical": special.spherical_bessel_j0(plain),
        }  # fmt: skip
    repeated = (plain / 2).round()
    expressions["runs"] = lambda: {
        "frequent": (plain / 2).round().mode(1)[0],
        **{f"unique-{i}": out for i, out in enumerate(torch.unique(repeated, True, True, True))},
        **{f"run-{i}": out for i, out in enumerate(torch.unique_consecutive(repeated, True, True))},
        **{f"run-of-rows-{i}": out for i, out in enumerate(torch.unique_consecutive(index // 3, True, True, 0))},
        "listed": torch.cat([torch.nonzero_static(plain > 0, size=size, fill_value=7) for size in (3, 30)]),
    }
    expressions["outcomes"] = lambda: {
        "signbit": torch.signbit(plain * torch.tensor([0.0, -0.0, 1, 1, 1, 1], dtype=dtype)),
        "infinite": torch.isposinf(plain / 0) ^ torch.isneginf(plain / 0),
        "heaviside": torch.heaviside(plain.round(), vector.detach()[:1]),
        "angle": plain.angle(),
        "counts": torch.stack([(plain > 0).count_nonzero(), (plain.round() * 1.0).count_nonzero(0)[0]]),
        "quantified": torch.ops.aten._is_all_true(plain > -9) ^ torch.ops.aten._is_any_true(plain > 9),
        "isin": torch.isin(index, labels) ^ torch.isin(index, labels, invert=True),
    }
    return expressions
