"""Our own tree: what may stand at the top, how long a file may be, what must not be in it."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOP = {
    *("server", "proto", "client", "kernels", "deploy", "tests"),
    *("CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE"),
}
LINES_MAX = 600
PROSE = {".md", ".txt", ".json", ".png"}  # Documentation and data have no limit of lines.
# Written so that this file passes its own test.
FORBIDDEN = [re.compile(p) for p in (r"\b(TO[D]O|FIX[M]E|XX[X])\b", r"(?<![\w.])/(work|root|home)/[a-z]+/[a-z.]")]


def tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_top_level_is_the_declared_one() -> None:
    names = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} == TOP


def test_files_are_short_enough_to_read() -> None:
    long = {}
    for path in tracked():
        content = path.read_bytes()
        lines = 0 if b"\0" in content else content.count(b"\n")  # Inputs of the fuzz targets are no text.
        if lines > LINES_MAX and path.suffix not in PROSE and path.name != "LICENSE":
            long[str(path.relative_to(ROOT))] = lines
    assert not long, f"longer than {LINES_MAX} lines"


def test_no_file_names_this_machine_or_leaves_work_undone() -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # Binary.
        for number, line in enumerate(text.splitlines(), 1):
            found += [f"{path.relative_to(ROOT)}:{number}: {p.pattern}" for p in FORBIDDEN if p.search(line)]
    assert not found, "\n".join(found)


def test_scripts_can_be_run() -> None:
    for name in (
        "deploy/bundle",
        "deploy/carry",
        "deploy/package",
        "deploy/quickstart",
        "deploy/setup",
        "tests/run",
        "tests/report",
        "tests/evidence",
        ".ci/run",
    ):
        path = ROOT / name
        assert path.stat().st_mode & 0o111, f"{name} is not executable"
        assert path.read_text().startswith("#!/usr/bin/env ")


def test_text_ends_in_one_newline_and_has_no_trailing_blanks() -> None:
    wrong = []
    for path in tracked():
        if path.suffix in {".cc", ".h", ".cu", ".py", ".proto", ".sh", ".cmake"} or path.name == "CMakeLists.txt":
            text = path.read_text(encoding="utf-8")
            if text and (not text.endswith("\n") or text.endswith("\n\n") or re.search(r"[ \t]+$", text, re.M)):
                wrong.append(str(path.relative_to(ROOT)))
    assert not wrong
