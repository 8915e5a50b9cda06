"""Comparing two programs through a real daemon."""

import functools
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline
from plumbline import daemon, dump
from plumbline.v1 import audit_pb2


class Programs:
    """A small network's loss and gradient: at once, in two parts, and in two parts of which each counts the same."""

    def __init__(self) -> None:
        torch.manual_seed(2)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.x, self.y = torch.randn(12, 16), torch.randint(0, 4, (12,))

    def taps(self, losses: list[Tensor]) -> dict[str, Tensor]:
        self.model.zero_grad()
        total = torch.zeros(())
        for loss in losses:
            loss.backward()
            total = total + loss.detach()
        return {"loss": total, "grad:first": self.model[0].weight.grad}

    def loss(self, rows: slice, reduction: str = "mean") -> Tensor:
        return F.cross_entropy(self.model(self.x[rows]), self.y[rows], reduction=reduction)

    def whole(self) -> dict[str, Tensor]:
        return self.taps([self.loss(slice(None))])

    def by_token(self) -> dict[str, Tensor]:
        return self.taps([self.loss(rows, "sum") / 12 for rows in (slice(0, 5), slice(5, 12))])

    def mean_of_means(self) -> dict[str, Tensor]:
        return self.taps([self.loss(rows) / 2 for rows in (slice(0, 5), slice(5, 12))])


def test_rounding_and_bug(server: str) -> None:
    programs = Programs()
    same = plumbline.compare(programs.by_token, programs.whole, server=server)
    assert same.verdict == "TYPE_I"
    assert same.coverage.opaque == 0
    assert same.math_resolution < 1e-9
    assert same.taps["loss"].outcome == "TYPE_I"
    bug = plumbline.compare(programs.mean_of_means, programs.whole, server=server)
    assert (bug.verdict, bug.grade, bug.cause) == ("TYPE_II", "PROVEN", "MATHEMATICS")
    assert bug.margin > 1
    assert bug.suspect is not None
    assert bug.suspect.source.startswith("test_compare.py:")
    assert str(bug).splitlines()[0] == "TYPE_II (PROVEN)  cause: mathematics  surprise: inf"
    assert len(str(bug).splitlines()) <= 24
    assert "deciding tap" in bug.explain()


def test_runs_that_begin_with_different_weights(server: str) -> None:
    ours, theirs = Programs(), Programs()
    with torch.no_grad():
        theirs.model[2].bias.add_(1e-3)
    verdict = plumbline.compare(ours.whole, theirs.whole, server=server)
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "LEAF_MISMATCH")
    assert verdict.suspect is not None and verdict.suspect.op == "leaf param:2.bias"
    assert "began with different" in verdict.sentence
    assert plumbline.compare(ours.whole, Programs().whole, server=server).verdict == "TYPE_I"


def test_bare_values_and_exact(server: str) -> None:
    programs = Programs()
    values = {name: value.clone() for name, value in programs.whole().items()}
    assert plumbline.compare(programs.by_token, values, server=server).verdict == "TYPE_I"
    values["loss"] = values["loss"] * 1.5
    assert plumbline.compare(programs.by_token, values, server=server).verdict != "TYPE_I"
    assert plumbline.compare(programs.by_token, None, server=server).verdict == "TYPE_I"


def test_mathematics_of_what_overflows_is_compared(server: str) -> None:
    x = torch.linspace(70, 90, 64)
    wrong = plumbline.compare(
        lambda: {"y": torch.exp(x * 1.2)}, lambda: {"y": torch.exp(x * 1.1)}, server=server
    )  # Both are infinite at the end, but do not compute the same.
    assert (wrong.verdict, wrong.cause) == ("TYPE_II", "MATHEMATICS")
    same = plumbline.compare(lambda: {"y": torch.exp(x + x * 0.1)}, lambda: {"y": torch.exp(x * 1.1)}, server=server)
    assert same.verdict == "TYPE_I" and "held in fp32" in same.sentence


def test_without_a_common_tap_nothing_was_compared(server: str) -> None:
    x = torch.arange(4.0)
    verdict = plumbline.compare(lambda: {"y": x / 3}, lambda: {"z": x / 7}, server)
    assert verdict.verdict == "INCONCLUSIVE" and "no tap in common" in verdict.sentence, verdict.explain()


def test_private_daemon_is_cleaned_up() -> None:
    programs = Programs()
    with daemon.private() as address:
        folder = Path(address.removeprefix("unix:")).parent
        assert plumbline.compare(programs.whole, programs.whole, server=address).grade == "MATCH"
    assert not folder.exists()
    assert plumbline.compare(programs.whole, programs.whole).grade == "MATCH"


def test_assert_equivalent(server: str) -> None:
    programs = Programs()
    plumbline.testing.assert_equivalent(programs.by_token, programs.whole, server)
    with pytest.raises(AssertionError, match="TYPE_II"):
        plumbline.testing.assert_equivalent(programs.mean_of_means, programs.whole, server)


def test_both_draw_alike_and_the_target_as_if_alone(server: str) -> None:
    def program() -> dict[str, Tensor]:
        return {"y": F.dropout(torch.ones(64), 0.5) * torch.rand(64)}

    torch.manual_seed(9)
    alone = program()["y"]
    after = torch.get_rng_state()
    seen = []

    def target() -> dict[str, Tensor]:
        seen.append(program()["y"])
        return {"y": seen[-1]}

    torch.manual_seed(9)
    assert plumbline.compare(target, program, server=server).verdict == "TYPE_I"
    assert torch.equal(seen[0], alone)
    assert torch.equal(torch.get_rng_state(), after)


def test_errors_name_what_is_wrong(server: str) -> None:
    x = torch.ones(2)
    for target, reference, words in (
        (lambda: x, None, "target: expected a dict of tap name to tensor"),
        (lambda: {"x": 1.0}, None, "target: tap 'x': expected a tensor, found 1.0"),
        (lambda: {"x": x * 2}, {"y": x}, "reference for 'y', which is no tap of the step: x"),
        (lambda: {"x": x * 2}, {"x": torch.ones(3)}, r"has shape \[3\], expected \[2\]"),
    ):
        with pytest.raises(plumbline.PlumblineError, match=words):
            plumbline.compare(target, reference, server=server)
    with pytest.raises(plumbline.PlumblineError, match="no-such-profile"):
        plumbline.compare(lambda: {"x": x * 2}, None, server=server, profile="no-such-profile")
    with pytest.raises(plumbline.PlumblineError, match="no daemon answers"):
        plumbline.compare(lambda: {"x": x * 2}, None, server="unix:/nowhere")
    with pytest.raises(ZeroDivisionError):
        plumbline.compare(lambda: {"x": x * (1 / 0)}, None, server=server)


def test_opaque_operations_are_compared_by_their_inputs(server: str) -> None:
    torch.manual_seed(5)
    a, b, w = torch.randn(16, 24), torch.randn(24, 8), torch.randn(16, 8)

    def program(x: Tensor, weight: Tensor = w) -> dict[str, Tensor]:
        return {"loss": (torch.special.bessel_y0(x.abs()) * weight).sum()}

    def split() -> Tensor:
        return a[:, :12] @ b[:12] + a[:, 12:] @ b[12:]

    same = plumbline.compare(lambda: program(a @ b), lambda: program(split()), server=server)
    assert (same.verdict, same.coverage.opaque) == ("TYPE_I", 1), str(same)
    before = plumbline.compare(lambda: program(a @ b * 1.0001), lambda: program(a @ b), server=server)
    assert (before.verdict, before.cause) == ("TYPE_II", "MATHEMATICS"), str(before)
    assert "aten::mul" in before.suspect.op, str(before)
    behind = plumbline.compare(lambda: program(a @ b, w * 1.0001), lambda: program(a @ b), server=server)
    assert behind.verdict == "TYPE_II", str(behind)
    other = plumbline.compare(
        lambda: program(a @ b), lambda: {"loss": (torch.special.bessel_y1((a @ b).abs()) * w).sum()}, server=server
    )
    assert other.verdict == "INCONCLUSIVE", str(other)


def test_dump_program(tmp_path: Path) -> None:
    program, output = tmp_path / "program.py", tmp_path / "trace.pb"
    program.write_text("import torch\ndef main():\n    return {'y': torch.ones(3) * 2}\n")
    environment = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-m", "plumbline.dump", f"{program}:main", str(output)]
    subprocess.run(command, check=True, timeout=60, env=environment)
    frames = [audit_pb2.AuditRequest.FromString(message) for message in dump.load(output)]
    assert [f.op.name for f in frames if f.WhichOneof("frame") == "op"] == ["aten::ones.default", "aten::mul.Tensor"]
    assert frames[-1].step_end.frames == len(frames)


class Affine(nn.Module):
    def __init__(self, shifts: bool) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.weight, self.shift, self.shifts = nn.Parameter(torch.randn(5, 8)), nn.Parameter(torch.randn(5)), shifts

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight.T
        return torch.tanh(y + self.shift if self.shifts else y)


def test_a_parameter_that_only_the_reference_uses(server: str) -> None:
    x = torch.randn(6, 8)
    with_shift, without = Affine(True), Affine(False)
    verdict = plumbline.compare(lambda: {"y": without(x)}, lambda: {"y": with_shift(x)}, server=server)
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "MATHEMATICS")
    assert verdict.suspect is not None
    assert verdict.suspect.op == "aten::add.Tensor"  # Of the reference: the target has none.
    assert "the target goes on without it" in verdict.suspect_detail


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.scale = nn.Linear(4, 3), nn.Parameter(torch.tensor(2.6593))


def scaled_step(model: Scaled, cut: bool) -> dict[str, Tensor]:
    factor = model.scale.exp()
    (model.embed(torch.ones(2, 4)) * (factor.item() if cut else factor)).square().mean().backward()
    return {f"grad:{name}": p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("how", ["closure", "partial", "default", "method"])
def test_parameters_outside_of_what_is_called_are_named_by_the_model_that_is_held(how: str, server: str) -> None:
    def program(cut: bool) -> Callable[[], dict[str, Tensor]]:
        torch.manual_seed(5)
        model = Scaled()
        if how == "closure":
            return lambda: scaled_step(model, cut)
        if how == "partial":
            return functools.partial(scaled_step, model, cut=cut)
        if how == "default":
            return lambda own=model: scaled_step(own, cut)
        model.step = types.MethodType(lambda own: scaled_step(own, cut), model)
        return model.step

    verdict = plumbline.compare(program(cut=True), program(cut=False), server)
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "STRUCTURE"), verdict.explain()
    assert "grad:scale" in verdict.sentence
    assert plumbline.compare(program(cut=False), program(cut=False), server).verdict == "TYPE_I"
