"""mypy over the client's public API, by the rules in its pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "client" / "python"


def check(*programs: Path) -> list[str]:
    """What mypy says of the API and of these programs: its errors and notes, without its last line."""
    files = tomllib.loads((CLIENT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    # What it knows of PyTorch's types is kept: reading them takes most of its time.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", ROOT / "build" / "mypy"]
    ran = subprocess.run(
        [*command, *files, *programs], cwd=CLIENT, capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.stdout.splitlines()
