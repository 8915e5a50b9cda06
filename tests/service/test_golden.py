"""Golden runs: recorded once, later runs judged against them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from query_support import run_plumb
from stream_daemon import DaemonProcess
from torch import nn

import plumbline

Step = Callable[[nn.Module, Any, torch.Tensor, torch.Tensor], None]


def plain(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def accumulated(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    """The same mathematics in another order."""
    for i in range(0, len(x), 2):
        (nn.functional.mse_loss(model(x[i : i + 2]), y[i : i + 2], reduction="sum") / y.numel()).backward()
    optimizer.step()


def forgotten(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    """The last micro-batch's mean is divided as the others are, though it is smaller."""
    for i in range(0, len(x), 3):
        (nn.functional.mse_loss(model(x[i : i + 3]), y[i : i + 3]) / 3).backward()
    optimizer.step()


def train(
    daemon: DaemonProcess, step: Step, steps: int = 1, seed: int = 0, data: int = 1, **options: Any
) -> tuple[dict[int, plumbline.Verdict], dict[int, plumbline.PlumblineError]]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    generator = torch.Generator().manual_seed(data)
    with plumbline.watch(
        model, optimizer, daemon.address, job="golden", every=1, on_type_ii="ignore", **options
    ) as audit:
        for _ in range(steps):
            x, y = torch.randn(8, 6, generator=generator), torch.randn(8, 2, generator=generator)
            with audit.step():
                step(model, optimizer, x, y)
            optimizer.zero_grad()
            assert audit.flush(60)
        return {verdict.step: verdict for verdict in audit.verdicts()}, audit.errors()


@pytest.fixture
def golden(shared_daemon: DaemonProcess, run: str) -> str:
    verdicts, errors = train(shared_daemon, plain, 2, record_golden=run, run=run)
    assert not errors and [verdict.verdict for verdict in verdicts.values()] == ["TYPE_I"] * 2
    assert not any("golden" in note for verdict in verdicts.values() for note in verdict.notes)
    return run


def test_the_same_run_matches(shared_daemon: DaemonProcess, golden: str) -> None:
    verdicts, errors = train(shared_daemon, plain, 2, golden=golden)
    assert not errors
    for step, verdict in verdicts.items():
        assert (verdict.verdict, verdict.grade) == ("TYPE_I", "MATCH"), verdict.explain()
        assert verdict.reference == f"golden {golden} step {step}"


def test_another_order_is_rounding(shared_daemon: DaemonProcess, golden: str) -> None:
    verdicts, errors = train(shared_daemon, accumulated, golden=golden)
    assert not errors
    (verdict,) = verdicts.values()
    assert verdict.verdict == "TYPE_I" and verdict.grade != "MATCH", verdict.explain()
    assert verdict.math_resolution < 1e-9
    assert "compute the same mathematics" in verdict.sentence


def test_other_mathematics_is_a_bug_and_is_replayed(shared_daemon: DaemonProcess, golden: str, tmp_path: Path) -> None:
    verdicts, errors = train(shared_daemon, forgotten, golden=golden)
    assert not errors
    (verdict,) = verdicts.values()
    assert (verdict.verdict, verdict.cause, verdict.grade) == ("TYPE_II", "MATHEMATICS", "FIRST_ORDER"), (
        verdict.explain()
    )
    assert verdict.deciding_tap == "loss" and "is the first that differs" in verdict.suspect_detail
    file = tmp_path / "step.trace"
    assert run_plumb(shared_daemon, "export-trace", verdict.id, str(file)).returncode == 0
    assert run_plumb(shared_daemon, "golden", "remove", golden).returncode == 0  # The record goes along.
    again = run_plumb(shared_daemon, "replay", str(file), "--json")
    assert again.returncode == 2
    replayed = json.loads(again.stdout)
    assert replayed["sentence"] == verdict.sentence and replayed["margin"] == verdict.margin
    assert float(replayed["surprise"]) == verdict.surprise
    assert replayed["reference"] == f"golden {golden} step 0"


def test_a_number_that_python_computed_never_accuses(shared_daemon: DaemonProcess, run: str) -> None:
    def clipped(first: Step, limit: float) -> Step:
        def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
            first(model, type("Later", (), {"step": lambda: None}), x, y)
            for p in model.parameters():
                p.grad.mul_(limit / p.grad.norm().item())
            optimizer.step()

        return step

    train(shared_daemon, clipped(plain, 0.3), record_golden=run, run=run)
    verdicts, errors = train(shared_daemon, clipped(accumulated, 0.3), golden=run)
    assert not errors and verdicts[0].verdict == "TYPE_I", verdicts[0].explain()
    verdicts, errors = train(shared_daemon, clipped(accumulated, 0.4), golden=run)
    assert not errors and verdicts[0].verdict == "INCONCLUSIVE", verdicts[0].explain()


def test_a_large_tap_is_judged_by_its_projection(shared_daemon: DaemonProcess, run: str) -> None:
    """One wrong element among thousands, in a tap of which the golden run keeps one number."""

    def program(error: float) -> Step:
        def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
            audit = program.audit
            wide = torch.outer(model(x).flatten(), torch.linspace(1, 2, 500))
            audit.tap("wide", wide + error * (torch.arange(wide.numel()).reshape(wide.shape) == 4321))

        return step

    def once(error: float, **options: Any) -> plumbline.Verdict:
        torch.manual_seed(0)
        model = nn.Linear(6, 2)
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
        with plumbline.watch(
            model, None, shared_daemon.address, job="golden", every=1, on_type_ii="ignore", **options
        ) as audit:
            program.audit = audit
            with audit.step():
                program(error)(model, None, x, x)
            assert audit.flush(60) and not audit.errors(), audit.errors()
            (verdict,) = audit.verdicts()
            return verdict

    once(0.0, record_golden=run)
    assert once(0.0, golden=run).verdict == "TYPE_I"
    wrong = once(1e-3, golden=run)
    assert (wrong.verdict, wrong.cause) == ("TYPE_II", "MATHEMATICS"), wrong.explain()


def test_a_tap_may_be_called_as_a_group_is(shared_daemon: DaemonProcess, run: str) -> None:
    """The gradients are rounded otherwise, and a number with the name of all of them is wrong."""

    def once(step: Step, factor: float, **options: Any) -> plumbline.Verdict:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
        optimizer = torch.optim.AdamW(model.parameters())
        draw = torch.Generator().manual_seed(1)
        x, y = torch.randn(8, 6, generator=draw), torch.randn(8, 2, generator=draw)
        with plumbline.watch(
            model, optimizer, shared_daemon.address, job="golden", every=1, on_type_ii="ignore", **options
        ) as audit:
            with audit.step():
                audit.tap("all gradients", (factor * model(x)).square().mean())
                step(model, optimizer, x, y)
            assert audit.flush(60) and not audit.errors(), audit.errors()
            (verdict,) = audit.verdicts()
            return verdict

    once(plain, 1.0, record_golden=run)
    assert once(accumulated, 1.0, golden=run).verdict == "TYPE_I"
    wrong = once(accumulated, 1.001, golden=run)
    assert (wrong.verdict, wrong.cause) == ("TYPE_II", "MATHEMATICS"), wrong.explain()


def test_gradients_may_be_masked_anywhere(shared_daemon: DaemonProcess, run: str) -> None:
    """Within backward, and after it, where the step sends what backward left as well."""
    mask = torch.rand(16, 6, generator=torch.Generator().manual_seed(2)).round()

    def masked(hooked: bool, wrong: bool = False) -> Step:
        def apply(gradient: torch.Tensor) -> torch.Tensor:
            return gradient.mul_(mask.flip(0) if wrong else mask)

        def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
            if hooked:
                model[0].weight.register_hook(lambda gradient: apply(gradient.clone()))
            nn.functional.mse_loss(model(x), y).backward()
            if not hooked:
                apply(model[0].weight.grad)
            optimizer.step()

        return step

    for recorded in (False, True):
        train(shared_daemon, masked(recorded), record_golden=f"{run}-{recorded}", run=f"{run}-{recorded}")
        for hooked in (False, True):
            verdicts, errors = train(shared_daemon, masked(hooked), golden=f"{run}-{recorded}")
            assert not errors and verdicts[0].verdict == "TYPE_I", verdicts[0].explain()
            verdicts, errors = train(shared_daemon, masked(hooked, wrong=True), golden=f"{run}-{recorded}")
            assert not errors and verdicts[0].verdict == "TYPE_II", verdicts[0].explain()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"seed": 5}, "leaf 'param:0.bias' (fp32, 16 elements) has other content in the target"),
        ({"data": 5}, "is not among the data that the target was fed"),
    ],
)
def test_other_leaves_are_an_error(
    shared_daemon: DaemonProcess, golden: str, change: dict[str, int], expected: str
) -> None:
    verdicts, errors = train(shared_daemon, plain, golden=golden, **change)
    assert not verdicts and errors[0].code == "FAILED_PRECONDITION"
    assert expected in str(errors[0]) and f"golden run '{golden}'" in str(errors[0])


def test_steps_that_it_does_not_hold(shared_daemon: DaemonProcess, golden: str) -> None:
    verdicts, errors = train(shared_daemon, plain, 3, golden=golden)
    assert sorted(verdicts) == [0, 1] and list(errors) == [2]
    assert errors[2].code == "NOT_FOUND"
    assert f"step 2 is not in golden run '{golden}', which holds steps 0, 1 of rank 0" in str(errors[2])


def test_names(shared_daemon: DaemonProcess, golden: str) -> None:
    for options, code, expected in (
        ({"golden": "nothing"}, "NOT_FOUND", "there is no golden run 'nothing' in project default"),
        ({"record_golden": golden}, "ALREADY_EXISTS", f"golden run '{golden}' was recorded by run golden/{golden}"),
        ({"record_golden": "a/b"}, "INVALID_ARGUMENT", "golden: expected 1 to 128 characters"),
        ({"golden": golden, "reference": "r"}, "INVALID_ARGUMENT", "golden: expected no reference_run beside it"),
        ({"golden": golden, "record_golden": "b"}, "INVALID_ARGUMENT", "golden: expected no record_golden beside it"),
    ):
        with pytest.raises(plumbline.PlumblineError) as refused:
            train(shared_daemon, plain, **options)
        assert refused.value.code == code and expected in str(refused.value), refused.value


def test_exported_imported_restarted_damaged(
    shared_daemon: DaemonProcess, new_daemon: Callable[..., DaemonProcess], golden: str, tmp_path: Path
) -> None:
    file = tmp_path / "golden"
    assert run_plumb(shared_daemon, "golden", "export", golden, str(file)).returncode == 0
    elsewhere = new_daemon()
    imported = run_plumb(elsewhere, "golden", "import", str(file), "mine")
    assert imported.returncode == 0 and "mine" in imported.stdout, imported.stderr
    taken = run_plumb(elsewhere, "golden", "import", str(file), "mine")
    assert taken.returncode == 1 and "ALREADY_EXISTS" in taken.stderr
    elsewhere.kill()
    elsewhere.start()
    listed = run_plumb(elsewhere, "golden", "list", "--json")
    summary = json.loads(listed.stdout)
    assert (summary["header"]["name"], summary["steps"], summary["step_last"]) == ("mine", "2", "1")
    verdicts, errors = train(elsewhere, forgotten, golden="mine")
    assert not errors and verdicts[0].verdict == "TYPE_II"

    whole = file.read_bytes()
    for content, expected in (
        (b"epoch,loss\n", "expected a golden run that"),
        (whole[:-1], "cut short"),
        (whole[:-24], "cut short"),
        (whole[:200] + b"~" + whole[201:], "is damaged: at byte"),
        (b"PLGOLDN7" + whole[8:], "is of version 7; this daemon reads version 2"),
    ):
        file.write_bytes(content)
        ran = run_plumb(elsewhere, "golden", "import", str(file), "other")
        assert ran.returncode == 1 and expected in ran.stderr and ran.stderr.count("\n") == 1, ran

    (stored,) = (elsewhere.directory / "data" / "golden").rglob("*.golden")
    stored.write_bytes(whole[:200] + b"~" + whole[201:])
    elsewhere.kill()
    elsewhere.start()
    with pytest.raises(plumbline.PlumblineError, match="golden run 'mine' is damaged: at byte"):
        train(elsewhere, plain, golden="mine")
    assert "is damaged" in run_plumb(elsewhere, "golden", "list").stdout


def test_what_plumb_golden_takes(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    for words, expected in (
        ([], "golden: expected list, export NAME FILE"),
        (["export", "nothing"], "golden: expected list, export NAME FILE"),
        (["export", "nothing", str(tmp_path / "file")], "there is no golden run 'nothing'"),
        (["remove", "nothing"], "there is no golden run 'nothing'"),
        (["import", str(tmp_path / "file")], "cannot read"),
    ):
        ran = run_plumb(shared_daemon, "golden", *words)
        assert ran.returncode == 1 and expected in ran.stderr and ran.stderr.count("\n") == 1, ran
    assert not list(tmp_path.iterdir())
