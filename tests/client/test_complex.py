"""Complex tensors: judged like the real numbers that they are made of, in whole steps and in partial ones."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch import view_as_complex as paired
from torch import view_as_real as parts

import plumbline

Program = Callable[[], dict[str, Tensor]]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, Y, ANGLE = normal(1, 4, 6, 2), normal(2, 4, 6, 2), normal(3, 4, 6)
A, B = paired(X), paired(Y)
(RE, IM), (C, D) = X.unbind(-1), Y.unbind(-1)


def one(compute: Callable[[], Tensor]) -> Program:
    return lambda: {"y": compute()}


def written() -> Tensor:
    z = A.clone()
    z[1:].mul_(B[1:])
    z[0] = B.conj()[0]
    return parts(z)


def written_apart() -> Tensor:
    product = torch.stack([RE * C - IM * D, RE * D + IM * C], -1)
    return torch.cat([torch.stack([C[:1], -D[:1]], -1), product[1:]])


def product_apart(sign: float = 1.0) -> Tensor:
    """A times B's conjugate, transposed."""
    return torch.stack([RE @ C.T + IM @ D.T, sign * (IM @ C.T - RE @ D.T)], -1)


def quotient_apart(sign: float = 1.0) -> Tensor:
    return torch.stack([RE * C + sign * IM * D, IM * C - RE * D], -1) / (C**2 + D**2)[..., None]


# The program on complex numbers, the same on real ones, and a wrong one.
CASES: dict[str, tuple[Program, Program, Program]] = {
    "product": (
        one(lambda: parts(A @ B.mH)),
        one(product_apart),
        one(lambda: product_apart(-1.0)),
    ),
    "halves": (
        one(lambda: parts(A.chalf()).float() * 2),
        one(lambda: torch.stack([RE.half(), IM.half()], -1).float() * 2),
        one(lambda: torch.stack([RE.half(), -IM.half()], -1).float() * 2),
    ),
    "quotient": (
        one(lambda: parts(A / B)),
        one(quotient_apart),
        one(lambda: quotient_apart(-1.0)),
    ),
    "written": (
        one(written),
        one(written_apart),
        one(lambda: written_apart() * torch.tensor([1.0, 1.001])),
    ),
    "euler": (
        one(lambda: parts(A * torch.exp(1j * ANGLE))),
        one(lambda: parts(A * torch.polar(torch.ones_like(ANGLE), ANGLE))),
        one(lambda: parts(A * torch.polar(torch.ones_like(ANGLE), -ANGLE))),
    ),
    "dot": (
        one(lambda: parts(torch.vdot(A[0], B[1])[None])),
        one(lambda: parts((A[0].conj() * B[1]).sum()[None])),
        one(lambda: parts(torch.dot(A[0], B[1])[None])),
    ),
    "running product": (
        one(lambda: parts(torch.exp(1j * ANGLE).cumprod(0))),
        one(lambda: torch.stack([ANGLE.cumsum(0).cos(), ANGLE.cumsum(0).sin()], -1)),
        one(lambda: torch.stack([ANGLE.cumsum(0).cos(), -ANGLE.cumsum(0).sin()], -1)),
    ),
    "biased": (
        one(lambda: parts(torch.addmm(A @ B.mH, A, B.mH, beta=0.5))),
        one(lambda: 1.5 * product_apart()),
        one(lambda: 1.501 * product_apart()),
    ),
    "narrow": (
        one(lambda: parts(paired(X.bfloat16().float()) * B).flatten(1).bfloat16()),
        one(lambda: (parts(B * paired(X.bfloat16().float()))).flatten(1).bfloat16()),
        one(lambda: parts(A * (1.0 + 0.1j) * B).flatten(1).bfloat16()),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_complex_numbers_are_judged_by_their_parts(server: str, name: str) -> None:
    program, same, wrong = CASES[name]
    verdict = plumbline.compare(program, same, server)
    assert verdict.verdict == "TYPE_I" and verdict.coverage.opaque == 0, verdict.explain()
    for target, reference in ((program, wrong), (wrong, program)):
        verdict = plumbline.compare(target, reference, server)
        assert verdict.verdict == "TYPE_II" and verdict.cause == "MATHEMATICS", verdict.explain()


def test_taps_of_complex_numbers(server: str) -> None:
    product, apart = one(lambda: A * B), one(lambda: paired(torch.stack([RE * C - IM * D, RE * D + IM * C], -1)))
    verdict = plumbline.compare(product, apart, server)
    assert verdict.verdict == "TYPE_I" and verdict.message.coverage.elements == 2 * A.numel(), verdict.explain()
    assert plumbline.compare(product, one(lambda: A * B.conj()), server).verdict == "TYPE_II"


def test_a_write_through_a_conjugate_is_opaque_and_nothing_else(server: str) -> None:
    def program() -> dict[str, Tensor]:
        z = torch.empty_like(A)
        z.conj().copy_(B)
        return {"y": parts(z)}

    verdict = plumbline.compare(program, one(lambda: parts(B.conj().resolve_conj())), server)
    assert verdict.grade == "MATCH", verdict.explain()
    assert list(verdict.coverage.opaque_names) == ["aten::copy_.default on complex64*"]


class Turned(nn.Module):
    """Rotary embedding with a table in a complex buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(8, 8), nn.Linear(8, 3)
        self.register_buffer("turns", torch.polar(torch.ones(5, 4), normal(4, 5, 4)))

    def forward(self, x: Tensor) -> Tensor:
        pairs = paired(self.into(x).unflatten(-1, (-1, 2)))
        return self.out(parts(pairs * self.turns).flatten(-2))


def trained(address: str, scope: object) -> tuple[list[Tensor], plumbline.watch.__class__ | None]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Turned())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    audit = plumbline.watch(model, optimizer, address, job="turned", every=1, scope=scope) if address else None
    assert audit is None or audit._transport.wait_open(30)
    for seed in (5, 6):

        def step(seed: int = seed) -> None:
            model(normal(seed, 2, 5, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        if audit is None:
            step()
            continue
        with audit.step():
            step()
        assert audit.flush(30)
        assert audit.missed() == 0, list(audit._missed)
    return [parameter.detach().clone() for parameter in model.parameters()], audit


@pytest.mark.parametrize("scope", [None, ["1"], ["1.into"]], ids=str)
def test_a_complex_buffer_is_known_by_name_and_no_bit_changes(daemon, scope: list[str] | None) -> None:
    plain, _ = trained("", None)
    watched, audit = trained(daemon.address, scope)
    audit.close()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert not daemon.violations
    leaves = {frame.leaf.name for frame in daemon.steps[0] if frame.HasField("leaf")}
    assert ("buffer:1.turns" in leaves) == (scope != ["1.into"])


@pytest.mark.parametrize("scope", [None, ["1"]], ids=str)
def test_steps_of_a_job_with_complex_tensors(server: str, scope: list[str] | None) -> None:
    _, audit = trained(server, scope)
    verdicts = audit.verdicts()
    audit.close()
    assert len(verdicts) == 2
    for verdict in verdicts:
        assert verdict.verdict == "TYPE_I" and verdict.coverage.opaque == 0, verdict.explain()
