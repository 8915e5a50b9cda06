"""Factorisations and systems of equations, and Fourier transforms, with their gradients."""

import torch
from image_expressions import Expression, differentiated
from torch import Tensor, fft, linalg


def matrix_expressions(dtype: torch.dtype = torch.float64, seed: int = 3) -> dict[str, Expression]:
    """Of float64 or float32: narrower formats have no such kernels."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw).to(dtype).requires_grad_()

    a, b, c, stack = normal(5, 5), normal(5, 3), normal(3, 5), normal(2, 4, 4)
    tall, wide, vector, odd = normal(6, 4), normal(3, 5), normal(5), normal(3, 7)

    def definite() -> Tensor:
        return a @ a.mT + torch.eye(5, dtype=dtype)

    def lower() -> Tensor:
        return a.tril(-1) * 0.3 + torch.diag_embed(vector.abs() + 1)

    functions = {
        "triangular": (lambda: linalg.solve_triangular(lower(), b, upper=False), [a, vector, b]),
        "triangular-right": (lambda: linalg.solve_triangular(lower().mT, c, upper=True, left=False), [a, vector, c]),
        "triangular-unit": (lambda: linalg.solve_triangular(a * 0.3, b, upper=True, unitriangular=True), [a, b]),
        "cholesky": (lambda: linalg.cholesky(definite()), [a]),
        "cholesky-upper": (lambda: linalg.cholesky(definite(), upper=True), [a]),
        "cholesky-solve": (lambda: torch.cholesky_solve(b, lower()), [a, vector, b]),
        "cholesky-inverse": (lambda: torch.cholesky_inverse(lower()), [a, vector]),
        "solve": (lambda: linalg.solve(a, b) + linalg.solve(a.mT, b), [a, b]),
        "solve-right": (lambda: linalg.solve(a, c, left=False), [a, c]),
        "solve-vector": (lambda: linalg.solve(a, vector), [a, vector]),
        "solve-stack": (lambda: linalg.solve(stack, tall[:4]), [stack, tall]),
        "inverse": (lambda: linalg.inv(a) @ b, [a, b]),
        "inverse-stack": (lambda: linalg.inv(stack), [stack]),
        "determinant": (lambda: linalg.det(stack) * vector[:2] + linalg.det(a), [stack, vector, a]),
        "log-determinant": (lambda: linalg.slogdet(stack)[1] + torch.logdet(definite()), [stack, a]),
        "lu": (lambda: linalg.lu(tall)[1] @ linalg.lu(tall)[2] + linalg.lu(tall)[1].sum(), [tall]),
        "lu-wide": (lambda: linalg.lu(wide)[2], [wide]),
        "lu-solve": (lambda: linalg.lu_solve(*linalg.lu_factor(a), b), [a, b]),
        "lu-solve-adjoint": (lambda: linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True), [a, b]),
        "qr": (lambda: linalg.qr(tall)[0].square() @ linalg.qr(tall)[1], [tall]),
        "qr-square": (lambda: linalg.qr(a)[1].square() + linalg.qr(a)[0], [a]),
        "qr-stack": (lambda: linalg.qr(stack)[1], [stack]),
        "least-squares": (lambda: linalg.lstsq(tall, a[:1].mT.repeat(2, 2)[:6]).solution, [tall, a]),
        "least-norm": (lambda: linalg.lstsq(wide, b[:3]).solution, [wide, b]),
        "pseudo-inverse": (lambda: linalg.pinv(tall.detach()) @ tall.flip(0)[:, :2], [tall]),
        "eigenvalues": (lambda: linalg.eigvalsh(definite()), [a]),
        "eigenvectors": (lambda: linalg.eigh(definite())[1].square() @ b, [a, b]),
        "eigen-stack": (lambda: linalg.eigh(stack + stack.mT, UPLO="U")[0], [stack]),
        "singular-values": (lambda: linalg.svdvals(tall) * vector[:4], [tall, vector]),
        "singular-vectors": (lambda: linalg.svd(wide, full_matrices=False)[2].square() @ b, [wide, b]),
        "singular-square": (lambda: linalg.svd(a)[0].square() @ b + linalg.svd(stack)[1].sum(), [a, b, stack]),
        "nuclear": (lambda: linalg.matrix_norm(tall, "nuc") + linalg.matrix_norm(wide, 2), [tall, wide]),
        "rfft": (lambda: torch.view_as_real(fft.rfft(odd)).square().sum(-1), [odd]),
        "rfft-two": (lambda: torch.view_as_real(fft.rfft2(tall, norm="ortho"))[..., 0], [tall]),
        "irfft": (lambda: fft.irfft(fft.rfft(odd) * fft.rfft(odd.flip(1)), n=7), [odd]),
        "irfft-even": (lambda: fft.irfft(fft.rfft(tall), norm="forward"), [tall]),
        "fft": (lambda: fft.ifft(fft.fft(odd) * torch.exp(1j * odd)).real, [odd]),
        "fft-two": (lambda: fft.fft2(tall).abs(), [tall]),
        "hfft": (lambda: fft.hfft(torch.complex(odd, odd.flip(0))), [odd]),
        "convolution": (lambda: fft.irfft(fft.rfft(tall, n=8) * fft.rfft(tall.flip(1), n=8), n=8), [tall]),
    }
    return {f"matrix-{name}": differentiated(function, *inputs) for name, (function, inputs) in functions.items()}
