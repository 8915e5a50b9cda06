"""Complex tensors with their gradients: products, conjugates, polar form, views as real numbers, joins and sums."""

import torch
from image_expressions import Expression, differentiated
from torch import Tensor, view_as_complex, view_as_real


def complex_expressions(dtype: torch.dtype = torch.float64, seed: int = 3) -> dict[str, Expression]:
    """Of float64 or float32: the others have no complex counterpart."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw).to(dtype).requires_grad_()

    x, y, real, size, angle = normal(3, 4, 2), normal(3, 4, 2), normal(3, 4), normal(3, 4), normal(4)
    left, right, batch = normal(3, 5, 2), normal(5, 4, 2), normal(2, 4, 3, 2)
    index, mask = torch.tensor([2, 0, 2]), torch.tensor([True, False, True, True])
    a, b = (lambda: view_as_complex(x)), (lambda: view_as_complex(y))

    def stored() -> Tensor:
        made = torch.zeros(3, 4, dtype=a().dtype)
        made[1:] = a()[:2]
        made[0].copy_(real[0])
        return made.mul_(b()).add_(b(), alpha=0.5)

    def filled() -> Tensor:
        made = torch.ones_like(a().detach()) + torch.full((4,), 0.5 - 2j, dtype=a().dtype)
        made[1].fill_(3j)
        return made * a()

    functions = {
        "product": (lambda: a() * b(), [x, y]),
        "product-real": (lambda: a() * real + real[0] * b(), [x, y, real]),
        "product-number": (lambda: a() * 0.7 + b() * (0.3 - 1.1j) - 2j * real, [x, y, real]),
        "sum": (lambda: a() + b() - real + (1.5 - 0.5j), [x, y, real]),
        "scaled-sum": (lambda: torch.add(a(), b(), alpha=0.3) - torch.sub(b(), a(), alpha=1.5 + 2j), [x, y]),
        "difference": (lambda: 1.0 - a() - -b(), [x, y]),
        "conjugate": (lambda: a() * b().conj() + a().conj(), [x, y]),
        "conjugate-view": (lambda: view_as_real(a().conj()[1:].resolve_conj().t()).flatten(), [x]),
        "physical": (lambda: torch.conj_physical(a()) * b(), [x, y]),
        "parts": (lambda: (a() * b()).real * real + a().imag, [x, y, real]),
        "complex": (lambda: torch.complex(real, size) * a(), [x, real, size]),
        "polar": (lambda: torch.polar(size.abs() + 0.1, angle.expand(3, 4)) * a(), [x, size, angle]),
        "polar-table": (lambda: a() * torch.polar(torch.ones(4, dtype=dtype), angle.detach()), [x]),
        "euler": (lambda: a() * torch.exp(1j * angle) + torch.exp(b()), [x, y, angle]),
        "abs": (lambda: a().abs() * real, [x, real]),
        "square": (lambda: a() ** 2 + b().square(), [x, y]),
        "angle": (lambda: a().detach().angle() * real, [real]),
        "sign": (lambda: view_as_real(a().detach().sgn()).sum(-1) * real, [real]),
        "quotient": (lambda: a() / b(), [x, y]),
        "quotient-real": (lambda: a() / (real.abs() + 0.5) + b() / 3.0, [x, y, real]),
        "reciprocal": (lambda: a().reciprocal() + 2.0 / b(), [x, y]),
        "total": (lambda: a().sum() * b(), [x, y]),
        "sums": (lambda: a().sum(1, keepdim=True) * b().mean(0) + b().mean(), [x, y]),
        "rows": (lambda: a()[index] * b().index_select(0, index), [x, y]),
        "gathered": (lambda: a().gather(1, index[:, None]) * b()[:, torch.tensor([1, 1, 3])], [x, y]),
        "windows": (lambda: a()[:, 1:].t().reshape(-1) * b()[:, :3].flatten().flip(0), [x, y]),
        "layouts": (lambda: a().t().contiguous().view(2, 6) * b().reshape(2, 6), [x, y]),
        "joined": (lambda: torch.cat([a(), b()], -1) * torch.stack([b(), a()], 1).flatten(1), [x, y]),
        "parts-of": (lambda: a().chunk(2, 1)[1] * b()[..., 1:3] + a().select(1, 0)[:, None], [x, y]),
        "masked": (lambda: torch.where(mask, a(), b()) + a().masked_fill(~mask, 2.0 - 1j), [x, y]),
        "triangle": (lambda: a().tril(1) * b().triu().roll(1, 0), [x, y]),
        "matrices": (lambda: view_as_complex(left) @ view_as_complex(right), [left, right]),
        "matrices-conjugate": (lambda: a().mH @ view_as_complex(left), [x, left]),
        "batches": (lambda: torch.bmm(view_as_complex(batch), a()[None].expand(2, 3, 4)), [batch, x]),
        "biased": (
            lambda: torch.addmm(a(), view_as_complex(left), view_as_complex(right), alpha=0.5),
            [x, left, right],
        ),
        "biased-batches": (
            lambda: torch.baddbmm(b()[0], view_as_complex(batch), a()[None].expand(2, 3, 4), beta=0.3),
            [y, batch, x],
        ),
        "vector": (lambda: a() @ b()[0], [x, y]),
        "dot": (lambda: torch.dot(a()[0], b()[1]) * a(), [x, y]),
        "dot-conjugate": (lambda: torch.vdot(a()[0], b()[1]) * b(), [x, y]),
        "running-sum": (lambda: a().cumsum(1) * b(), [x, y]),
        "running-product": (lambda: a().cumprod(0) * b(), [x, y]),
        "logarithm": (lambda: b().log() * a(), [x, y]),
        "stored": (stored, [x, y, real]),
        "filled": (filled, [x]),
        "casts": (lambda: real.to(a().dtype) * a() + b().to(torch.complex128).to(a().dtype), [x, y, real]),
        "power": (lambda: (a() * a().conj()).real.sqrt(), [x]),
        "polar-form": (lambda: torch.polar(a().abs(), b().angle().detach()), [x]),
    }

    def plain(function: object) -> object:
        """In real numbers: weights and taps are."""
        return lambda: view_as_real(out) if (out := function()).is_complex() else out  # type: ignore[operator]

    return {
        f"complex-{name}": differentiated(plain(function), *inputs)  # type: ignore[arg-type]
        for name, (function, inputs) in functions.items()
    }
