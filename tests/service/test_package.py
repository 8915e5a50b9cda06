"""The packages: what is in them, and that it runs from where they put it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from urllib.parse import unquote

import grpc
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
    version = re.search(r'^VERSION = "(.*)"$', (ROOT / "client/python/plumbline/version.py").read_text(), re.M)
    assert version and f"Version: {version[1]}\n" in control
    for library in ("libgrpc++", "libprotobuf", "libsqlite3-0", "libopenblas", "libjemalloc2", "libstdc++6"):
        assert library in control
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    profiles = {f"usr/share/plumbline/profiles/{path.name}" for path in (ROOT / "deploy/profiles").iterdir()}
    assert profiles < files
    assert {each for each in files if each.startswith("usr/bin/")} == {"usr/bin/plumb", "usr/bin/plumblined"}
    assert {f"usr/lib/systemd/system/plumblined.{kind}" for kind in ("service", "socket")} < files
    assert {"usr/lib/sysusers.d/plumbline.conf", "usr/share/zsh/vendor-completions/_plumb"} < files
    assert not {each for each in files if not each.startswith("usr/")}


def listens(root: Path) -> str:
    """Where the socket unit listens."""
    unit = (root / "usr/lib/systemd/system/plumblined.socket").read_text()
    return re.findall(r"^ListenStream=(.*)$", unit, re.M)[0]


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
    # systemd would listen where the daemon is told to.
    assert f"--listen=unix:{listens(root)}" in words
    words = [word.replace("/run/", f"{tmp_path}/") for word in words]
    checked = subprocess.run(
        [root / words[0].lstrip("/"), *words[1:], "--check-config"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_a_step_is_judged_by_what_the_packages_install(packages: Path, root: Path, tmp_path: Path) -> None:
    (wheel,) = packages.glob("plumbline-*-py3-none-any.whl")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(pip, check=True, capture_output=True)
    names = {path.name.partition("-")[0] for path in site.iterdir()}
    assert names - {"__pycache__"} == {"plumbline", "plumbline_pytest.py"}, "nothing of others is shadowed"
    assert (site / "plumbline/py.typed").exists()
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


def test_the_container_starts_the_daemon_with_flags_that_it_takes(tmp_path: Path) -> None:
    text = (ROOT / "deploy/Containerfile").read_text()
    program, flags = (json.loads(re.findall(rf"^{word} (.*)$", text, re.M)[0]) for word in ("ENTRYPOINT", "CMD"))
    assert program == ["plumblined"]
    checked = subprocess.run([binary(), *flags, "--check-config"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    volumes = json.loads(re.findall(r"^VOLUME (.*)$", text, re.M)[0])
    assert all(any(volume in flag for flag in flags) for volume in volumes)


def test_systemd_listens_and_the_first_caller_starts_the_daemon(packages: Path, tmp_path: Path) -> None:
    path, log = tmp_path / "d.sock", tmp_path / "log"
    program = [binary(), f"--listen=unix:{path}", f"--data-dir={tmp_path}/data"]
    with log.open("wb") as out:
        # Becomes the daemon itself, with the socket on descriptor 3.
        daemon = subprocess.Popen(["systemd-socket-activate", "-l", path, *program], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + START_S_MAX
        while not path.exists():
            assert daemon.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        assert "plumblined" not in Path(f"/proc/{daemon.pid}/comm").read_text(), "nobody has called yet"
        info = path.stat()
        with grpc.insecure_channel(f"unix:{path}") as channel:
            grpc.channel_ready_future(channel).result(START_S_MAX)
            assert "plumblined" in Path(f"/proc/{daemon.pid}/comm").read_text()
        assert path.stat().st_ino == info.st_ino and path.stat().st_mode == info.st_mode, "the socket is systemd's"
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(STOP_S_MAX) == 0, log.read_text()
    assert path.exists(), "systemd listens on"


def test_a_socket_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    def started(kind: int, address: object) -> str:
        with socket.socket(kind) as given, open("/dev/null", "rb") as nothing:
            given.bind(address)
            given.listen()
            flags = f"--listen=unix:{tmp_path}/asked --data-dir={tmp_path}/data"
            script = f'exec 3<&{given.fileno()}; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$0" {flags}'
            command = ["bash", "-c", script, binary()]
            ran = subprocess.run(
                command,
                stdin=nothing,
                pass_fds=[given.fileno()],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert ran.returncode == 1 and ran.stderr.count("\n") == 1, ran.stderr
            return ran.stderr

    other = f"{tmp_path}/other"
    assert f"expected sockets that --listen names, found unix:{other}" in started(socket.AF_UNIX, other)
    assert "expected listening unix sockets, found descriptor 3" in started(socket.AF_INET, ("127.0.0.1", 0))


def test_the_wheel_of_the_daemon_needs_nothing_of_the_machine(packages: Path, tmp_path: Path) -> None:
    (wheel,) = packages.glob("plumbline_daemon-*.whl")
    assert re.search(r"-py3-none-.*manylinux_2_\d+_x86_64.*\.whl$", wheel.name)
    (client,) = packages.glob("plumbline-*-py3-none-any.whl")
    site = tmp_path / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        site,
        wheel,
        client,
    ]
    subprocess.run(pip, check=True, capture_output=True)
    program = site / "plumbline_daemon/bin/plumblined"
    needs = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    foreign = [line.split("=>")[1].split()[0] for line in needs.splitlines() if "=>" in line]
    # Of every manylinux machine.
    of_c = {"libc.so.6", "libm.so.6", "libresolv.so.2", "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1"}
    assert foreign and {Path(each).name for each in foreign if not each.startswith(str(site))} <= of_c, needs
    code = "import plumbline, torch; print(plumbline.compare(lambda: {'x': torch.ones(3).sum()}, None).verdict)"
    environment = {"PYTHONPATH": str(site), "PATH": "/nowhere"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout == "TYPE_I\n", ran.stderr
    shown = subprocess.run(
        [sys.executable, site / "bin/plumb", "formats", "bf16"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0 and "bf16" in shown.stdout, shown.stderr


def test_the_wheel_of_the_daemon_hands_on_the_notices_of_what_it_carries(packages: Path) -> None:
    (wheel,) = packages.glob("plumbline_daemon-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        notices = {Path(name).name: opened.read(name) for name in opened.namelist() if "/licenses/" in name}
        (bill,) = (name for name in opened.namelist() if name.endswith("auditwheel.cdx.json"))
        carried = re.findall(r"pkg:deb/debian/([^@]+)@", opened.read(bill).decode())  # What auditwheel put in.
    assert len(set(carried)) > 10
    for package in set(carried):
        notice = Path(f"/usr/share/doc/{unquote(package)}/copyright").read_bytes()
        assert notices[unquote(package)] == notice
        for licence in re.findall(rb"/usr/share/common-licenses/([\w.+-]*\w)", notice):
            assert notices[licence.decode()] == Path(f"/usr/share/common-licenses/{licence.decode()}").read_bytes()
    assert notices["LICENSE"] == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("name", ["plumb", "plumblined"])
def test_manual_pages_have_every_flag(root: Path, name: str) -> None:
    page = root / f"usr/share/man/man1/{name}.1"
    shown = subprocess.run(
        ["man", "--warnings", "-l", page],
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "300", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stderr == ""
    told = subprocess.run([root / "usr/bin" / name, "--help"], capture_output=True, text=True, check=False).stdout
    flags = re.findall(r"^    --(\w+)", told, re.M)
    assert len(flags) > 20
    options = re.split(r"^[A-Z ]+$", shown.stdout.partition("\nOPTIONS\n")[2], flags=re.M)[0]
    documented = re.findall(r"^ +--([\w-]+)", options, re.M)
    assert sorted(flag.replace("-", "_") for flag in documented) == sorted(flags)


def test_zsh_completes(root: Path) -> None:
    def completed(*words: str) -> list[str]:
        script = f"""
          words=({" ".join(words)}); CURRENT=$#words
          compadd() {{ shift; print -l -- ${{(M)@:#$words[CURRENT]*}} }}
          source "{root}/usr/share/zsh/vendor-completions/_plumb"
        """
        path = f"{root}/usr/bin:/usr/bin:/bin"
        return subprocess.run(
            ["zsh", "-f", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True
        ).stdout.split()

    assert completed("plumb", "re") == ["report", "replay", "reproduce"]
    assert completed("plumb", "jobs", "--ser") == ["--server"]
    assert completed("plumblined", "--data") == ["--data-dir"]


def test_completion_knows_commands_and_flags(root: Path) -> None:
    def completed(words: str) -> list[str]:
        script = (
            f'source "{root}/usr/share/bash-completion/completions/plumb"; COMP_WORDS=({words});'
            ' COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _plumbline "${COMP_WORDS[0]}"; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        path = f"{root}/usr/bin:/usr/bin:/bin"
        return subprocess.run(
            ["bash", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True
        ).stdout.split()

    assert completed("plumb re") == ["report", "replay", "reproduce"]
    assert completed("plumb jobs --ser") == ["--server"]
    assert completed("plumblined --data") == ["--data-dir"]
    # Every command of the error that lists them.
    wrong = subprocess.run([root / "usr/bin/plumb", "joke"], capture_output=True, text=True, check=False).stderr
    listed = re.findall(r"[a-z-]+", wrong.partition("expected ")[2].replace("or ", ""))
    assert set(completed("plumb ''")) == set(listed)
