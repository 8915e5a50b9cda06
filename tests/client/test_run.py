"""Programs that know nothing of Plumbline, under `python -m plumbline run`: what they print and how they end is what
they print and how they end by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"
LIMIT_S = 300
TORCHRUN = ["-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2", "--rdzv-backend=c10d"]


@dataclass(frozen=True)
class Ended:
    status: int
    output: str
    said: list[str]  # By Plumbline.
    errors: str  # By the program.


def start(command: list[str], server: str) -> subprocess.Popen[str]:
    paths = [str(HERE), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PLUMBLINE_SERVER": server}
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=SCRIPTS,
    )


def end(process: subprocess.Popen[str]) -> Ended:
    output, errors = process.communicate(timeout=LIMIT_S)
    lines = errors.splitlines()
    said = [line.removeprefix("plumbline: ") for line in lines if line.startswith("plumbline: ")]
    rest = "\n".join(line for line in lines if not line.startswith("plumbline: "))
    return Ended(process.returncode, output, said, rest)


def audited(program: list[str], server: str, *options: str, launcher: tuple[str, ...] = ()) -> Ended:
    """The program under audit, which must print and end as it does by itself."""
    command = [*launcher, "-m", "plumbline", "run", "--every", "1", "--wait", *options, *program]
    both = [start([*launcher, *program], server), start(command, server)]
    plain, watched = (end(process) for process in both)
    assert (watched.output, watched.status) == (plain.output, plain.status), (plain.errors, watched.errors)
    assert not plain.said
    assert plain.errors or not watched.errors
    return watched


def test_images_from_worker_processes(server: str) -> None:
    assert audited(["mnist.py", "--workers", "2"], server).said == ["4 of 4 steps audited: 4 TYPE_I"]


def test_a_bug_between_steps_is_shown(server: str) -> None:
    said = audited(["mnist.py", "--tests-in-training-mode"], server, "--job", "spoils").said
    assert any(line.startswith("4 of 4 steps audited: 3 TYPE_I, 1 TYPE_II") for line in said), said
    first = next(line for line in said if line.startswith("the first TYPE_II is default/spoils/"))
    assert "/0/2: " in first and "buffer:norm.running_mean" in first


def test_accumulation_clipping_and_evaluation(server: str) -> None:
    assert audited(["nano.py", "--bfloat16"], server).said == ["4 of 4 steps audited: 4 TYPE_I"]


def test_what_compiles_is_audited_once_it_has_compiled(server: str) -> None:
    assert audited(["nano.py", "--compile"], server).said == ["2 of 4 steps audited: 2 TYPE_I"]


def test_hugging_face_s_trainer(server: str, tmp_path: Path) -> None:
    said = audited(["sentences.py", str(tmp_path)], server).said
    assert said == ["4 of 4 steps audited: 4 TYPE_I"]


def test_ranks_that_torchrun_starts_are_judged_together(server: str) -> None:
    said = audited(["replicas.py"], server, launcher=(*TORCHRUN, "--rdzv-endpoint=localhost:0")).said
    assert said == ["3 of 3 steps audited: 3 TYPE_I"]


def test_a_module_in_place_of_a_script(server: str) -> None:
    plain, watched = (
        end(start([*command, "-m", "scripts.ends", "trains"], server))
        for command in ([], ["-m", "plumbline", "run", "--every", "2"])
    )
    assert plain.status == watched.status == 0, watched.errors
    assert watched.output == plain.output
    assert watched.said == ["1 of 2 steps audited: 1 TYPE_I"]


def test_exit_status(server: str) -> None:
    ended = audited(["ends.py", "exits", "-x", "--every", "7"], server)
    assert ended.status == 3
    assert ended.said == ["2 of 2 steps audited: 2 TYPE_I"]
    assert audited(["ends.py", "says"], server).status == 1


def test_what_a_program_raises_is_printed_as_ever(server: str) -> None:
    plain, watched = (
        end(start([*command, "ends.py", "raises"], server))
        for command in ([], ["-m", "plumbline", "run", "--every", "1", "--wait"])
    )
    assert plain.status == watched.status == 1
    assert (watched.output, watched.errors) == (plain.output, plain.errors)
    assert watched.said == [
        "1 of 1 steps audited: 1 TYPE_I",
        "1 step with an error, the first of them step 1: not captured: the program raised Stop within it",
    ]


def test_why_nothing_was_audited(server: str, tmp_path: Path) -> None:
    assert audited(["ends.py", "never"], server).said == [
        "nothing was audited: no optimizer of PyTorch stepped in this process (compiled steps and further processes are"
        " not followed)"
    ]
    assert audited(["ends.py", "says"], server).said == ["nothing was audited: the program did not import PyTorch"]
    away = audited(["ends.py", "trains"], f"unix:{tmp_path}/nobody").said
    assert "nothing was audited: 2 steps, none of which was sampled or could be captured" in away
    assert "2 steps not audited: the daemon was away" in away
    wrong = audited(["ends.py", "trains"], server, "--budget", "2").said
    assert wrong == [
        "nothing was audited: budget: expected a share of step time in (0, 1) such as 0.02, found 2.0",
    ]


def test_processes_that_are_spawned_are_not_followed(server: str) -> None:
    assert audited(["ends.py", "spawns", "train"], server).said == ["2 of 2 steps audited: 2 TYPE_I"]


def test_what_is_not_there(server: str) -> None:
    for program in (["no_such_file.py"], ["-m", "no_such_module"]):
        plain, watched = (end(start([*command, *program], server)) for command in ([], ["-m", "plumbline", "run"]))
        assert (watched.status, watched.errors) == (plain.status, plain.errors)
