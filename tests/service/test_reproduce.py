"""TYPE_II steps reduced to the operation at fault: scripts that run with PyTorch alone."""

from __future__ import annotations

import contextlib
import io
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from query_support import run_plumb, send, type_i, type_ii
from stream_client import Client
from stream_daemon import DaemonProcess
from torch.utils._python_dispatch import TorchDispatchMode

import plumbline


class Faulty(TorchDispatchMode):
    """A device that gets one element of an operation's result wrong."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = result = func(*args, **(kwargs or {}))
        if str(func) == self._name:
            while not isinstance(result, torch.Tensor):
                result = (result or args)[0]
            result.view(-1)[1] += 0.5
        return returned


def reproduce(daemon: DaemonProcess, named: str, script: Path) -> None:
    made = run_plumb(daemon, "reproduce", named, "-o", str(script))
    assert made.returncode == 0, made.stderr


class Ran:
    """The script's exit code and what it printed, on this device or on a faulty one."""

    def __init__(self, script: Path, faulty: str = "") -> None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), Faulty(faulty), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
        self.code = ended.value.code
        self.lines = [line.strip() for line in printed.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pytest, for the scripts that run in its process."""
    monkeypatch.setattr(sys, "argv", ["repro.py"])


def found_faulty(daemon: DaemonProcess, name: str, program: Any) -> plumbline.Verdict:
    with Faulty(name):  # Outside of the capture, which sees the operation itself.
        verdict = plumbline.compare(program, None, daemon.address, "pytorch-cpu", capture="outputs")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()
    assert verdict.suspect.op == name.replace(".", "::", 1)
    return verdict


def sliced_sum() -> dict[str, torch.Tensor]:
    x = torch.linspace(-1, 1, 24).reshape(4, 6)
    return {"y": torch.add(x[1:3, ::2], x.t()[:2, 1].unsqueeze(1), alpha=0.5)}


def product() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    x, w = torch.randn(64, 128), torch.randn(96, 128)
    return {"y": torch.mm(x.exp(), w.t())}


def normalised() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {"y": torch.nn.functional.layer_norm(torch.randn(3, 8), [8], torch.randn(8), torch.randn(8), 1e-5)}


def in_place() -> dict[str, torch.Tensor]:
    torch.manual_seed(2)
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    x.mul_(0.5).addcmul_(y, y, value=0.25)
    return {"x": x}


def half() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    x = torch.randn(6, 4).to(torch.bfloat16)
    return {"y": torch.softmax(x, -1).float().sum(0)}


def indexed() -> dict[str, torch.Tensor]:
    torch.manual_seed(4)
    loss = torch.nn.functional.cross_entropy(torch.randn(5, 7), torch.tensor([1, 0, 6, 2, 2]), reduction="none")
    return {"loss": loss * 2}


def listed() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    x, y = [torch.randn(3), torch.randn(2, 2)], [torch.randn(3), torch.randn(2, 2)]
    torch._foreach_add_(x, y, alpha=0.125)
    return {"x": x[0], "y": x[1]}


PROGRAMS = {
    "aten.add.Tensor": sliced_sum,
    "aten.mm.default": product,
    "aten.native_layer_norm.default": normalised,
    "aten.addcmul_.default": in_place,
    "aten._softmax.default": half,
    "aten._log_softmax.default": indexed,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_operation_at_fault_runs_alone(shared_daemon: DaemonProcess, name: str, tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    verdict = found_faulty(shared_daemon, name, PROGRAMS[name])
    reproduce(shared_daemon, verdict.id, script)
    assert (tmp_path / "repro.bin").exists() == (name == "aten.mm.default")  # Too large to be embedded.
    sound, faulty = Ran(script), Ran(script, name)
    assert sound.code == 0, sound.lines
    assert verdict.suspect_detail in sound.lines and not any("not observed" in line for line in sound.lines)
    assert sound.lines[-1].endswith(": inside")
    assert faulty.code == 2, faulty.lines
    assert any("OUTSIDE in 1 of" in line and "element 1 is" in line for line in faulty.lines)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any) -> tuple[Any, ...]:
    """An operation of CUDA builds, which gives a state of a generator besides."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    state, rest = torch.zeros(2, dtype=torch.uint64), (torch.zeros((), dtype=torch.int64), q.new_empty(0))
    return scores.softmax(-1) @ v, scores.logsumexp(-1), None, None, q.shape[2], k.shape[2], state, *rest


def test_an_operation_that_gives_a_generator_s_state_besides(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    script, name = tmp_path / "repro.py", "_scaled_dot_product_flash_attention"
    torch.manual_seed(6)
    q = torch.randn(1, 2, 6, 8)

    def program() -> dict[str, torch.Tensor]:
        return {"y": getattr(torch.ops.aten, name)(q, q, q)[0] * 2}

    library = torch.library.Library("aten", "IMPL", "CPU")
    library.impl(name, attention)
    try:
        reproduce(shared_daemon, found_faulty(shared_daemon, f"aten.{name}.default", program).id, script)
        sound, faulty = Ran(script), Ran(script, f"aten.{name}.default")
    finally:
        library._destroy()
    assert sound.code == 0 and sum(line.endswith(": inside") for line in sound.lines) >= 2, sound.lines
    assert any("nothing is promised of 2 elements" in line for line in sound.lines)
    assert faulty.code == 2 and any("OUTSIDE in 1 of" in line for line in faulty.lines), faulty.lines


def large_products() -> dict[str, torch.Tensor]:
    torch.manual_seed(6)
    x, y = torch.randn(1024, 1024).bfloat16(), torch.randn(1024, 1024).bfloat16()
    return {"large": torch.mm(x, y), "small": torch.mm(x / 16, y)}


def test_large_products_are_asked_by_rows_and_replayed_by_elements(new_daemon: Any) -> None:
    daemon = new_daemon()

    def by_rows(verdict: plumbline.Verdict) -> list[str]:
        return [note for note in verdict.message.notes if "projections of their rows" in note]

    sound = plumbline.compare(large_products, None, daemon.address, "pytorch-cpu", capture="outputs")
    assert sound.verdict == "TYPE_I" and by_rows(sound)[0].endswith(": 2; a replay checks every element")
    # 0.5 is less than the roundings of a row of the first together, and stands out in one of the second.
    wrong = found_faulty(daemon, "aten.mm.default", large_products)
    assert by_rows(wrong)[0].endswith(": 1; a replay checks every element"), wrong.explain()
    again = run_plumb(daemon, "replay", wrong.id)
    assert "1 elements beyond" in again.stdout and wrong.suspect_detail not in again.stdout, again.stdout
    assert "projections of their rows" not in again.stdout


def test_nothing_of_ours_is_needed(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    reproduce(shared_daemon, found_faulty(shared_daemon, "aten.add.Tensor", sliced_sum).id, script)
    ran = subprocess.run([sys.executable, "-I", str(script), "cpu"], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "") and f"torch {torch.__version__} on cpu" in ran.stdout


def test_lists_written_in_place(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    verdict = found_faulty(shared_daemon, "aten._foreach_add_.List", listed)
    script = tmp_path / "repro.py"
    reproduce(shared_daemon, verdict.id, script)
    ran = Ran(script)
    assert ran.code == 0 and ran.lines[-2:] == ["self: inside", "self: inside"], ran.lines


def test_other_mathematics(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """The operation is executed well, and says so: it is the wrong one. Its operands are replayed."""
    x = torch.linspace(1, 2, 8)

    def target() -> dict[str, torch.Tensor]:
        return {"y": (x.exp() / 3).sum()}

    def reference() -> dict[str, torch.Tensor]:
        return {"y": (x.exp() / 4).sum()}

    verdict = plumbline.compare(target, reference, shared_daemon.address)
    assert (verdict.verdict, verdict.cause, verdict.suspect.op) == ("TYPE_II", "MATHEMATICS", "aten::div.Tensor")
    script = tmp_path / "repro.py"
    reproduce(shared_daemon, verdict.id, script)
    ran = Ran(script)
    assert ran.code == 0 and "not observed, but our own rounded replay of the step: operands 1" in ran.lines, ran.lines


def test_from_a_file_and_what_cannot_be(shared_daemon: DaemonProcess, client: Client, run: str, tmp_path: Path) -> None:
    send(client.stream(run), type_i(0), type_ii(1))
    identity, file, script = f"default/job/{run}/0/1", tmp_path / "file", tmp_path / "r.py"
    assert run_plumb(shared_daemon, "export-trace", identity, str(file)).returncode == 0
    reproduce(shared_daemon, str(file), script)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "r.py"]
    for words, expected in (
        ([identity], "-o: expected a file NAME.py"),
        ([identity, "-o", str(tmp_path / "r.txt")], "-o: expected a file NAME.py"),
        ([identity, "-o", str(tmp_path / "none" / "r.py")], "cannot write to"),
        ([identity[:-1] + "0", "-o", str(tmp_path / "n.py")], "no trace was kept"),
        (["nothing", "-o", str(tmp_path / "n.py")], "neither a file nor"),
        ([], "reproduce: expected"),
    ):
        ran = run_plumb(shared_daemon, "reproduce", *words)
        assert ran.returncode == 1 and expected in ran.stderr and ran.stderr.count("\n") == 1, ran
    assert not list(tmp_path.glob("n.*"))


def test_a_leaf_is_no_operation(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    x = torch.linspace(1, 2, 8)
    y = torch.linspace(2, 3, 8)
    verdict = plumbline.compare(lambda: {"y": x.exp()}, lambda: {"y": y.exp()}, shared_daemon.address)
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "LEAF_MISMATCH")
    ran = run_plumb(shared_daemon, "reproduce", verdict.id, "-o", str(tmp_path / "r.py"))
    assert ran.returncode == 1 and "which no operation of the step computed" in ran.stderr, ran
