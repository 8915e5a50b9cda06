"""The newcomer's first run: the quickstart's training, through the real daemon."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_bug_is_told_from_rounding(server: str, tmp_path: Path) -> None:
    script = ROOT / "deploy" / "lib" / "quickstart_train.py"
    done = subprocess.run(
        [sys.executable, str(script), "--server", server, "--steps", "17"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    by_job = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            record = json.loads(line)
            by_job[record["job"]] = record
    assert by_job["accumulation-bug"]["verdict"] == "TYPE_II"
    assert "quickstart_train.py" in by_job["accumulation-bug"]["suspect"]
    for job in ("accumulation-fixed", "accumulation-fixed-value"):
        assert by_job[job]["verdict"] == "TYPE_I"
        assert by_job[job]["type_i_steps"] == by_job[job]["steps"] >= 3
        assert (by_job[job]["coverage"], by_job[job]["opaque"]) == (1.0, 0)
