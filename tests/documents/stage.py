"""Runs the commands of our documents where what they name is there: a daemon, jobs, a script, certificates."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import os
import re
import subprocess
import sys
import tempfile
import threading
import types
import unittest.mock
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from commands import ROOT, Command

sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("service", "scenario")]

from authority import Authority  # noqa: E402
from private_daemon import binary  # noqa: E402
from query_support import send, type_i, type_ii  # noqa: E402
from stream_client import Client  # noqa: E402

import plumbline  # noqa: E402

TIMEOUT_S = 60.0

# What a test of its own runs: the command begins like this, and the test's file holds that text.
ELSEWHERE = {
    "./deploy/package": ("tests/service/test_package.py", "deploy/package"),
    "./deploy/bundle": ("tests/service/test_bundle.py", "deploy/bundle"),
    "./deploy/setup": ("tests/run", "deploy/setup --tests"),
    "./tests/run": (".ci/run", "./tests/run"),
    "./tests/report": ("tests/bench/small_reports.py", '"tests" / "report"'),
    "./tests/evidence": ("tests/documents/test_documents.py", '"tests" / "evidence"'),
    "jsonnet deploy/kubernetes": ("tests/service/test_kubernetes.py", "monitoring/prometheusrule.jsonnet"),
    "promtool test rules": ("tests/service/observability.py", '"promtool", "test", "rules"'),
    "python -m plumbline.calibrate": ("tests/client/test_calibrate.py", "plumbline.calibrate.__main__"),
    "plumb follow": ("tests/service/test_publish.py", '[plumb(), "follow"'),
    "pip install": ("tests/bench/newcomer.sh", "--find-links /packages 'plumbline[daemon]'"),
    "apt install ./plumbline": ("tests/bench/newcomer.sh", "/packages/plumbline_*.deb"),
    "from plumbline.integrations.transformers": ("tests/client/test_integrations.py", "integrations.transformers"),
}
# What cannot be run by a test, and why.
NOT_RUN = {
    "./deploy/quickstart --keep": "it builds for minutes, and leaves a daemon running",
    "./deploy/quickstart": "it builds for minutes; tests/scenario/test_quickstart.py runs its training",
    "./deploy/carry": "it downloads what a node with a GPU builds with",
    "kubectl apply": "there is no cluster; tests/service/test_kubernetes.py holds the manifests against their schemas",
    "systemctl": "no systemd runs in a test; test_package.py has systemd-socket-activate start the daemon",
}
# Those that go on until a signal: they must print something, and then live.
ENDLESS = re.compile(r"plumb (ui|watch)|.*WatchVerdicts|plumblined(?!.*--check-config)")
PLUMB_VERDICTS = {0, 2, 3}  # Exit statuses that are answers.


def settled(command: Command) -> str:
    """Empty: it is to be run here. Otherwise "run" where another test runs it, or the reason why none does."""
    for start, reason in NOT_RUN.items():
        if command.text.startswith(start):
            return reason
    for start, (file, text) in ELSEWHERE.items():
        if command.text.startswith(start):
            assert text in (ROOT / file).read_text(), f"{command}: expected {text!r} in {file}"
            return "run"
    return ""


class Stage:
    """A folder of a reader's own, and a daemon with what the documents' examples ask for."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._address = address
        self._socket = address.removeprefix("unix:").removeprefix("//")
        client = Client(address)
        for job, run, made in (
            ("one-batch", "reference", type_i),
            ("accumulation-bug", "r", type_ii),
            ("accumulation-fixed", "r", type_i),
        ):
            stream = client.stream(run, job)
            send(stream, *(made(step) for step in range(9)))
            stream.close()
        client.close()
        (folder / "train.py").write_text(_TRAIN)
        pair = Authority(folder).signs("daemon")
        pair.certificate.rename(folder / "daemon.pem")
        pair.key.rename(folder / "daemon.key")
        self._environment = {
            **os.environ,
            "PLUMBLINE_SERVER": address,
            "PATH": os.pathsep.join([*self._programs(), os.environ["PATH"]]),
        }

    def _programs(self) -> list[str]:
        """Folders of python, grpcurl, plumb and plumblined."""
        return [str(Path(sys.executable).parent), *(str(binary(name).parent) for name in ("plumb", "plumblined"))]

    def run(self, command: Command) -> None:
        """AssertionError, or what a block of Python raises: it does not do as the document says."""
        if command.language == "python" and "def test_" in command.text:
            self._tests(self._here(command.text))
        elif command.language == "python":
            self._python(command)
        elif command.language == "textproto":
            # Its people are of this machine.
            (self._folder / "policy").write_text(command.text.replace("trainers", "root").replace("grace", "root"))
            (self._folder / "known").write_text(f"ci {hashlib.sha256(b'secret').hexdigest()}\n")
            self._shell("plumblined --check-config --policy=policy --token-file=known", endless=False)
        else:
            self._shell(self._here(command.text), endless=ENDLESS.match(command.text) is not None)

    def _python(self, command: Command) -> None:
        """As a program of its own. What it watched, by whatever name, must have been judged, and without a bug."""
        names = self._names()
        with contextlib.redirect_stdout(io.StringIO()), _one_rank():
            exec(compile(self._here(command.text), command.place, "exec"), names)
        for audit in (each for each in names.values() if isinstance(each, plumbline.Audit)):
            assert audit.flush(TIMEOUT_S) and not audit.errors(), audit.errors()
            verdicts = audit.verdicts()
            audit.close()
            assert all(verdict.verdict == "TYPE_I" for verdict in verdicts), verdicts

    def _tests(self, text: str) -> None:
        """A file of tests, which pytest runs with the client's plugin."""
        given = types.ModuleType("given_by_the_reader")
        vars(given).update(self._names())
        (self._folder / "test_of_a_document.py").write_text(f"from {given.__name__} import *\n{text}")
        options = ["-q", "-p", "no:cacheprovider", f"--rootdir={self._folder}", "-c", os.devnull]
        plugin = [] if _installed("plumbline_pytest") else ["-p", "plumbline_pytest"]
        sys.modules[given.__name__] = given
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                status = pytest.main([*options, *plugin, f"--plumbline-server={self._address}", str(self._folder)])
        finally:
            for name in (given.__name__, "test_of_a_document"):
                sys.modules.pop(name, None)
        assert status == 0, printed.getvalue()

    def _here(self, text: str) -> str:
        """With this stage's places for those of a reader's machine, and its names for placeholders."""
        text = text.replace("unix:///run/plumbline.sock", self._address)
        listens = text.startswith("plumblined")
        text = text.replace("/run/plumbline.sock", str(self._folder / "own.sock") if listens else self._socket)
        text = text.replace("/var/lib/plumbline", str(self._folder / "data"))
        for ports in (":9464", ":7077"):
            text = text.replace(ports, ":0")
        return re.sub(r"\b(ID|JOB|P|J|NAME|FILE)\b|list\|[a-z|]+", lambda name: _PLACEHOLDERS[name[0]], text)

    def _shell(self, text: str, endless: bool) -> None:
        given = {"cwd": self._folder, "env": self._environment, "text": True}
        if endless:
            past = " --past" if text == "plumb watch" else ""  # Nothing new comes.
            command = ["bash", "-c", f"exec {text}{past}"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **given) as process:
                assert process.stdout is not None
                silence = threading.Timer(TIMEOUT_S, process.kill)
                silence.start()
                line = process.stdout.readline()
                silence.cancel()
                alive = process.poll() is None
                process.terminate()
                rest = process.stdout.read()
            assert alive and line.strip(), line + rest
            return
        ran = subprocess.run(["bash", "-c", text], capture_output=True, timeout=TIMEOUT_S, check=False, **given)
        answers = PLUMB_VERDICTS if text.startswith("plumb ") else {0}
        assert ran.returncode in answers, f"exit status {ran.returncode}\n{ran.stdout}\n{ran.stderr}"

    def _names(self) -> dict[str, object]:
        """What a reader's program has where a block of Python begins."""
        model, x = _Model(), torch.ones(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(batch: torch.Tensor) -> None:
            model(batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        def mean() -> dict[str, torch.Tensor]:
            return {"mean": x.mean()}

        _own_kernel()
        return {
            **{"torch": torch, "plumbline": plumbline, "model": model, "optimizer": optimizer, "train": train},
            **{"loader": [x, x], "target": mean, "reference": mean, "rms_norm_backward": _backward},
        }


@contextlib.contextmanager
def _one_rank() -> Iterator[None]:
    """What torchrun tells a program that it starts, here of one rank; ends the program's group."""
    ranks = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    with unittest.mock.patch.dict(os.environ, ranks):
        try:
            yield
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()


def _installed(plugin: str) -> bool:
    """Whether pytest loads it by itself."""
    return any(entry.value == plugin for entry in importlib.metadata.entry_points(group="pytest11"))


class _Model(torch.nn.Linear):
    """Its output has a loss, as those of Transformers have."""

    def __init__(self) -> None:
        super().__init__(3, 1)

    def forward(self, x: torch.Tensor) -> types.SimpleNamespace:
        return types.SimpleNamespace(loss=super().forward(x).square().mean())


def _backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, ...]:
    return grad, grad.sum(0)


def _own_kernel() -> None:
    """Registers mylib::rms_norm and its backward, once."""
    with contextlib.suppress(AttributeError):
        torch.ops.mylib.rms_norm.default  # noqa: B018
        return

    @torch.library.custom_op("mylib::rms_norm", mutates_args=())
    def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight

    @torch.library.custom_op("mylib::rms_norm_backward", mutates_args=())
    def rms_norm_backward(
        grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return grad * 1, grad.sum(0)


_PLACEHOLDERS = {
    **{"ID": "default/accumulation-bug/r/0/0", "JOB": "accumulation-bug", "P": "default", "J": "accumulation-bug"},
    **{"NAME": "ieee", "FILE": "step.trace", "list|export|import|remove": "list"},
}
_TRAIN = """
import torch

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 3)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@contextlib.contextmanager
def stage(address: str) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="plumbline.") as folder:
        yield Stage(Path(folder), address)


def run_all(all_commands: list[Command], on: Stage) -> tuple[int, list[str]]:
    """Runs what is to be run here: how many are run, by this or by a test of their own, and what went wrong."""
    done, wrong, ran = 0, [], set()
    for command in all_commands:
        how = settled(command)
        if how not in ("", "run"):
            continue
        try:
            if not how and command.text not in ran:
                on.run(command)
                ran.add(command.text)
            done += 1
        except Exception as error:
            wrong.append(f"{command}: {type(error).__name__}: {error}")
    return done, wrong
