"""Systems without a solution, spectra without eigenvectors, losses without a real value: whatever the answer is, it is
said, accuses nobody, and leaves the training as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import plumbline

STEPS = 3


def nearly_dependent(apart: float) -> Tensor:
    """A matrix whose last column is its first, but for so much."""
    draw = torch.Generator().manual_seed(3)
    columns = torch.randn(4, 3, generator=draw)
    return torch.cat([columns, columns[:, :1] + apart * torch.randn(4, 1, generator=draw)], 1)


def nearly_repeated(apart: float) -> Tensor:
    """A symmetric matrix with eigenvalues that are so close."""
    q = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))[0]
    return q @ torch.diag(torch.tensor([1.0, 1.0 + apart, 2.0, 3.0])) @ q.T


RIGHT_SIDE = torch.linspace(-1, 1, 8).view(4, 2)
SYSTEMS: dict[str, Callable[[Tensor], Tensor]] = {
    "solve": lambda a: torch.linalg.solve_ex(a, RIGHT_SIDE)[0].square().mean(),
    "inverse": lambda a: torch.linalg.inv_ex(a)[0].square().mean(),
    "cholesky": lambda a: torch.linalg.cholesky_ex(a @ a.T)[0].square().mean(),
    "elimination": lambda a: torch.linalg.lu_factor_ex(a)[0].square().mean(),
    "least squares": lambda a: torch.linalg.lstsq(a, RIGHT_SIDE).solution.square().mean(),
    "pseudo-inverse": lambda a: torch.linalg.pinv(a).square().mean(),
    "determinant": torch.linalg.det,
}
SPECTRA: dict[str, Callable[[Tensor], Tensor]] = {
    "eigenvectors": lambda a: (torch.linalg.eigh((a + a.T) / 2)[1] * torch.arange(4.0)).square().sum(),
    "eigenvalues": lambda a: torch.linalg.eigvalsh((a + a.T) / 2).log().sum(),
    "singular vectors": lambda a: (lambda u, s, v: (u @ torch.diag(s.sqrt()) @ v).square().sum())(*torch.linalg.svd(a)),
}


class Holder(nn.Module):
    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix)


def trained(server: str | None, matrix: Tensor, loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, list]:
    """What some steps make of the matrix; and their verdicts, where there is a server."""
    model = Holder(matrix.clone())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        value = loss(model.matrix)
        value.backward(torch.ones_like(value))
        optimizer.step()

    if server is None:
        for _ in range(STEPS):
            step()
        return model.matrix.detach(), []
    with plumbline.watch(model, optimizer, server, job="singular", every=1, on_type_ii="ignore") as audit:
        for _ in range(STEPS):
            with audit.step():
                step()
            assert audit.flush()
        assert not audit.errors()
        return model.matrix.detach(), audit.verdicts()


def judged(server: str, matrix: Tensor, loss: Callable[[Tensor], Tensor]) -> list[plumbline.Verdict]:
    plain, _ = trained(None, matrix, loss)
    watched, verdicts = trained(server, matrix, loss)
    assert torch.equal(plain.view(torch.int32), watched.view(torch.int32))
    assert len(verdicts) == STEPS
    for verdict in verdicts:
        assert verdict.verdict != "TYPE_II", verdict.explain()
    return verdicts


def answered_whole(verdict: plumbline.Verdict) -> bool:
    open_part = any("are open" in note for note in verdict.notes)
    return verdict.verdict == "TYPE_I" and not verdict.coverage.opaque and not open_part


@pytest.mark.parametrize("apart", [0.0, 1e-7, 1e-5, 1e-3])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_singular_system_accuses_nobody(server: str, name: str, apart: float) -> None:
    verdicts = judged(server, nearly_dependent(apart), SYSTEMS[name])
    # Where the algorithm itself says that it failed, its operation is named as one that was not audited.
    for verdict in verdicts:
        for operation in verdict.coverage.opaque_names:
            assert operation.startswith(("aten::linalg_", "aten::_linalg_")), operation


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_regular_system_is_answered(server: str, name: str) -> None:
    for verdict in judged(server, nearly_dependent(1.0), SYSTEMS[name]):
        assert answered_whole(verdict), verdict.explain()


def test_a_factorisation_that_failed_is_named(server: str) -> None:
    verdict = judged(server, nearly_dependent(0.0), SYSTEMS["cholesky"])[-1]
    assert "aten::linalg_cholesky_ex.default" in verdict.coverage.opaque_names, verdict.explain()
    assert verdict.grade != "PROVEN"


@pytest.mark.parametrize("apart", [1e-6, 1e-3])
@pytest.mark.parametrize("name", SPECTRA)
def test_near_eigenvalues_accuse_nobody(server: str, name: str, apart: float) -> None:
    judged(server, nearly_repeated(apart), SPECTRA[name])


@pytest.mark.parametrize("name", SPECTRA)
def test_eigenvalues_that_lie_apart_are_answered(server: str, name: str) -> None:
    for verdict in judged(server, nearly_repeated(0.4), SPECTRA[name])[1:]:
        assert answered_whole(verdict), verdict.explain()


def test_a_complex_loss(server: str) -> None:
    """Its gradient is what backward is told; there is no loss to be judged, and all else is."""
    verdicts = judged(server, nearly_dependent(1.0), lambda a: torch.complex(a.square().sum(), a.exp().mean()))
    for verdict in verdicts:
        assert answered_whole(verdict) and "loss" not in verdict.taps and verdict.taps, verdict.explain()


ROOTS: dict[str, Callable[[Tensor], Tensor]] = {
    "root": lambda share: (1 - share).sqrt(),
    "power": lambda share: (1 - share) ** 0.7,
    "of what is clamped": lambda share: (1 - share).clamp(min=0).sqrt(),
}


@pytest.mark.parametrize("root", ROOTS.values(), ids=ROOTS)
def test_the_root_of_what_is_exactly_zero_is_known(server: str, root: Callable[[Tensor], Tensor]) -> None:
    """As the share of noise has it of data that has none: its slope is infinite, and nothing was rounded before it."""
    draw = torch.Generator().manual_seed(2)
    w, x, noise = (torch.randn(6, 6, generator=draw) for _ in range(3))
    share = torch.full((6, 1), 0.75)
    share[2] = 1

    def program(factor: float) -> dict[str, Tensor]:
        weight = w.clone().requires_grad_()
        loss = ((share.sqrt() * x + root(share) * noise) @ (weight * factor) - noise).square().mean()
        loss.backward()
        return {"loss": loss.detach(), "gradient": weight.grad}

    verdict = plumbline.compare(lambda: program(1), None, server)
    assert verdict.verdict == "TYPE_I", verdict.explain()
    verdict = plumbline.compare(lambda: program(1.01), lambda: program(1), server)
    assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


def root(matrix: Tensor, factors: str, power: float) -> Tensor:
    if factors == "singular":
        left, values, right = torch.linalg.svd(matrix)
        return (left * values.pow(power)) @ right
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp_min(1e-7).pow(power)) @ vectors.T


def preconditioner(parts: bool, factors: str, floor: float, power: float = -0.25) -> Tensor:
    """As Shampoo's: of a few gradients, and a floor that all other directions share."""
    g = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    square = g[:, :1] @ g[:, :1].T + g[:, 1:] @ g[:, 1:].T if parts else g @ g.T
    return root(floor * torch.eye(8) + square, factors, power)


@pytest.mark.parametrize("floor", [1e-6, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("factors", ["singular", "eigen"])
def test_a_basis_that_rounding_chose_accuses_nobody(server: str, factors: str, floor: float) -> None:
    verdict = plumbline.compare(
        lambda: {"root": preconditioner(True, factors, floor)},
        lambda: {"root": preconditioner(False, factors, floor)},
        server,
    )
    assert verdict.verdict != "TYPE_II", verdict.explain()
    assert factors == "eigen" or verdict.verdict == "TYPE_I", verdict.explain()


def test_another_root_is_not_passed(server: str) -> None:
    verdict = plumbline.compare(
        lambda: {"root": preconditioner(True, "singular", 1e-2, -0.251)},
        lambda: {"root": preconditioner(False, "singular", 1e-2)},
        server,
    )
    assert verdict.verdict != "TYPE_I", verdict.explain()


@pytest.mark.parametrize("seed", range(6))
def test_a_sign_that_rounding_chose_accuses_nobody(server: str, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    g = torch.randn(3, 1, generator=draw) @ torch.randn(1, 4, generator=draw)

    def along(parts: bool, factor: float = 1) -> Tensor:
        square = g[:, :2] @ g[:, :2].T + g[:, 2:] @ g[:, 2:].T if parts else g @ g.T
        return factor * torch.linalg.eigh(square)[1][:, -1:].T @ g

    same = plumbline.compare(lambda: {"m": along(True)}, lambda: {"m": along(False)}, server)
    assert same.verdict == "TYPE_I", same.explain()
    wrong = plumbline.compare(lambda: {"m": along(True, 1.001)}, lambda: {"m": along(False)}, server)
    assert wrong.verdict == "TYPE_II", wrong.explain()
