"""The packages: what is in them, and that it runs from where they put it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stream_daemon import ROOT, START_S_MAX, STOP_S_MAX, binary
from test_bundle import AUDIT, answers

EXPOSURE_MAX = 2.0  # Of systemd-analyze: 0 is nothing, 10 everything.


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    made = subprocess.run(
        [ROOT / "deploy/package", "--from", binary().parents[1], folder], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


@pytest.fixture(scope="module")
def root(packages: Path) -> Path:
    """The files of the .deb, as in the root of a machine."""
    (package,) = packages.glob("plumbline_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, packages / "root"], check=True)
    return packages / "root"


def test_the_deb_declares_what_it_needs_and_has_no_more_than_it_should(packages: Path, root: Path) -> None:
    (package,) = packages.glob("plumbline_*.deb")
    control = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True, check=True).stdout
    version = re.search(r"project\(plumbline VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert version and f"Version: {version[1]}\n" in control
    for library in ("libgrpc++", "libprotobuf", "libsqlite3-0", "libopenblas", "libstdc++6"):
        assert library in control
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    profiles = {f"usr/share/plumbline/profiles/{path.name}" for path in (ROOT / "deploy/profiles").iterdir()}
    assert profiles < files
    assert {each for each in files if each.startswith("usr/bin/")} == {"usr/bin/plumb", "usr/bin/plumblined"}
    assert {"usr/lib/systemd/system/plumblined.service", "usr/lib/sysusers.d/plumbline.conf"} < files
    assert not {each for each in files if not each.startswith("usr/")}


def test_the_unit_is_hardened_and_its_command_is_one_that_the_daemon_takes(root: Path, tmp_path: Path) -> None:
    unit = root / "usr/lib/systemd/system/plumblined.service"
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    level = re.search(r"Overall exposure level for plumblined.service: ([\d.]+)", judged.stdout)
    assert level and float(level[1]) < EXPOSURE_MAX, judged.stdout + judged.stderr
    command = re.search(r"^ExecStart=(.*)$", unit.read_text(), re.M)
    assert command
    words = command[1].replace("$PLUMBLINED_FLAGS", "").replace("/var/lib/plumbline", str(tmp_path / "data")).split()
    words = [word.replace("/run/plumbline/", f"{tmp_path}/") for word in words]
    checked = subprocess.run(
        [root / words[0].lstrip("/"), *words[1:], "--check-config"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_a_step_is_judged_by_what_the_packages_install(packages: Path, root: Path, tmp_path: Path) -> None:
    (wheel,) = packages.glob("plumbline-*-py3-none-any.whl")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(pip, check=True, capture_output=True)
    assert {path.name.partition("-")[0] for path in site.iterdir()} == {"plumbline"}, "nothing of others is shadowed"
    metadata = next(site.glob("plumbline-*.dist-info/METADATA")).read_text()
    generated = (site / "plumbline/v1/audit_pb2_grpc.py").read_text()
    grpc = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", generated)
    assert grpc and f"Requires-Dist: grpcio>={grpc[1]}\n" in metadata
    assert re.search(r"Requires-Dist: protobuf<\d+,>=[\d.]+\n", metadata), metadata

    # One profile less shows that the daemon reads those beside it, and not the checkout's.
    usr, path, log = tmp_path / "usr", tmp_path / "d.sock", tmp_path / "log"
    shutil.copytree(root / "usr", usr)
    (usr / "share/plumbline/profiles/ascend-910.textproto").unlink()
    with log.open("wb") as out:
        command = [usr / "bin/plumblined", f"--listen=unix:{path}", f"--data-dir={tmp_path}/data"]
        daemon = subprocess.Popen(command, env={}, stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_S_MAX
        while not (answers(path) and "; profiles " in log.read_text()):
            assert daemon.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        assert "ieee" in log.read_text() and "ascend-910" not in log.read_text()
        audited = subprocess.run(
            [sys.executable, "-c", AUDIT, f"unix:{path}"],
            env={"PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert audited.stdout == f"{site}/plumbline/__init__.py ['TYPE_I']\n", audited.stderr
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(STOP_S_MAX) == 0


def test_completion_knows_commands_and_flags(root: Path) -> None:
    def completed(words: str) -> list[str]:
        script = (
            f'source "{root}/usr/share/bash-completion/completions/plumb"; COMP_WORDS=({words});'
            ' COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _plumb; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        path = f"{root}/usr/bin:/usr/bin:/bin"
        return subprocess.run(
            ["bash", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True
        ).stdout.split()

    assert completed("plumb re") == ["report", "replay", "reproduce"]
    assert completed("plumb jobs --ser") == ["--server"]
    # Every command of the error that lists them.
    wrong = subprocess.run([root / "usr/bin/plumb", "joke"], capture_output=True, text=True, check=False).stderr
    listed = re.findall(r"[a-z-]+", wrong.partition("expected ")[2].replace("or ", ""))
    assert set(completed("plumb ''")) == set(listed)
