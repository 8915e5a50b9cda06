"""A newcomer's path: the packages, installed and run on a bare Debian 12, timed without what is downloaded.

The machine is a chroot that mmdebstrap makes, with what APT would download already in its cache; it is kept under
~/.cache/plumbline, so that only the first run needs the network. PyTorch is the user's own: the one of this machine,
bound read-only into the other, and found by pip there as installed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "plumbline"
SCRIPT = ROOT / "tests" / "bench" / "newcomer.sh"
TIMEOUT_S = 1200


def missing() -> str:
    """What this machine lacks for it; empty: nothing."""
    if os.geteuid() != 0:
        return "root, who may change the root directory"
    programs = [name for name in ("mmdebstrap", "unshare", "chroot") if shutil.which(name) is None]
    return f"programs: {', '.join(programs)}" if programs else ""


def measure(packages: Path) -> dict[str, float]:
    """Seconds of each step, by its name; a step that failed is an error with what it said."""
    with tempfile.TemporaryDirectory(prefix="plumbline.") as scratch:
        root = Path(scratch) / "root"
        _bare_debian(root, next(packages.glob("*.deb")))
        (root / "packages").mkdir()
        for package in packages.iterdir():
            shutil.copy(package, root / "packages")
        shutil.copy(SCRIPT, root / "srv")
        site = _users_own(root)
        # All that it starts ends with it, what it mounts is nobody else's, and it has no network.
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", _ENTER, root, site]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"the packages do not work on a bare Debian:\n{ran.stdout}\n{ran.stderr}")
        return {name: float(seconds) for name, seconds in re.findall(r"^STEP (\S+) ([\d.]+)$", ran.stdout, re.M)}


_ENTER = """
set -euo pipefail
mount --bind "$1" "$0/mnt" && mount -o remount,bind,ro "$0/mnt"
mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev"
exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv bash /srv/newcomer.sh
"""


def _bare_debian(root: Path, package: Path) -> None:
    control = subprocess.run(["dpkg-deb", "-f", package, "Depends"], capture_output=True, check=True).stdout
    kept = CACHE / f"debian-12-{hashlib.sha256(control).hexdigest()[:16]}.tar"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        base = root.with_name("base")
        made = ["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", base]
        subprocess.run(made, check=True, timeout=TIMEOUT_S)
        shutil.copy(package, base / "package.deb")
        shutil.copy("/etc/resolv.conf", base / "etc")
        download = "apt-get update && apt-get install -y --download-only --no-install-recommends"
        shell = f"{download} ./package.deb python3-venv && rm package.deb"
        subprocess.run(["chroot", base, "bash", "-c", shell], check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
        whole = kept.with_suffix(f".{os.getpid()}")
        subprocess.run(["tar", "-C", base, "-cf", whole, "."], check=True)
        whole.rename(kept)
    root.mkdir()
    subprocess.run(["tar", "-C", root, "-xf", kept], check=True)


def _users_own(root: Path) -> Path:
    """Puts links to PyTorch, and to all that the client asks of others, into /opt/own; where they lead from there."""
    own = root / "opt" / "own"
    own.mkdir()
    site = Path(str(importlib.metadata.distribution("torch").locate_file("")))
    waiting = [Requirement(name) for name in ("torch", "numpy", "grpcio", "protobuf", "googleapis-common-protos")]
    seen = set()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        try:
            found = importlib.metadata.distribution(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            continue  # It was not needed here either.
        needs = [Requirement(text) for text in found.requires or ()]
        extras = ["", *wanted.extras]
        waiting += [n for n in needs if n.marker is None or any(n.marker.evaluate({"extra": e}) for e in extras)]
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (own / top).is_symlink():
                (own / top).symlink_to(Path("/mnt") / top)
    return site
