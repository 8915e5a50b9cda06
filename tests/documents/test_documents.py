"""What our documents say of the repository itself: lists of files, links, and which commands are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, commands_of, documents
from stage import ELSEWHERE, NOT_RUN, settled

HOW_TO_ADD = (ROOT / "tests" / "README.md").read_text().partition("## How to add")[2]
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
THINGS = {
    "an operation",
    "a primitive",
    "a query",
    "a metric",
    "a profile",
    "a format",
    "a framework",
    "an engine of the store",
}


def rows() -> list[list[str]]:
    lines = [line for line in HOW_TO_ADD.splitlines() if line.startswith("| a")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_there_is_a_list_for_everything_that_is_added() -> None:
    assert {what.partition(",")[0] for what, _ in rows()} == THINGS


@pytest.mark.parametrize(("what", "where"), rows(), ids=[what for what, _ in rows()])
def test_each_file_holds_what_the_list_says(what: str, where: str) -> None:
    entries = re.findall(r"`([^`]+)` \(`([^`]+)`\)", where)
    assert len(entries) >= 2, where
    for name, text in entries:
        assert text in (ROOT / name).read_text(), f"{what}: expected {text!r} in {name}"
    bare = re.findall(r"`([\w./-]+/[\w./-]+)`(?! \()", where)
    assert not bare, f"{what}: a file without what stands in it: {bare}"


def test_links_lead_somewhere() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {link}"
        for document in documents()
        for link in LINK.findall(document.read_text())
        if "://" not in link and not (document.parent / link).exists()
    ]
    assert not broken


def test_sections_that_comments_name_are_there() -> None:
    headings = set(re.findall(r"^#+ (.*)$", (ROOT / "kernels" / "README.md").read_text(), re.M))
    named = []
    for folder in ("kernels", "server", "client", "tests"):
        for path in (ROOT / folder).rglob("*.[hc]*"):
            text = re.sub(r"\n\s*// ", " ", path.read_text()) if path.suffix in (".h", ".cc", ".cu", ".cuh") else ""
            assert "NUMERICS section" not in text, path
            named += [(path, heading) for heading in re.findall(r'kernels/README\.md, "([^"]+)"', text)]
    assert len(named) >= 10
    assert not [(str(path), heading) for path, heading in named if heading not in headings]


def test_blocks_and_spans_are_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands.ROOT", tmp_path)
    (tmp_path / "a.md").write_text(
        "One `plumb jobs` and `plumb report`, `plumb\nexplain ID`.\n\n```sh\n./x   # says why\n\n./y\n```\n"
        "```text\nprinted\n```\n```python\nprint(1)\n```\n"
    )
    found = [(command.place, command.text) for command in commands_of(tmp_path / "a.md")]
    assert found == [
        *(("a.md:5", "./x"), ("a.md:7", "./y"), ("a.md:13", "print(1)\n")),
        *(("a.md:1", "plumb jobs"), ("a.md:1", "plumb explain ID")),
    ]
    (tmp_path / "a.md").write_text("```ruby\nputs 1\n```\n")
    with pytest.raises(ValueError, match="found 'ruby'"):
        commands_of(tmp_path / "a.md")


def test_every_exception_is_of_a_command_that_is_there() -> None:
    texts = [command for document in documents() for command in commands_of(document)]
    for start in (*ELSEWHERE, *NOT_RUN):
        assert any(command.text.startswith(start) for command in texts), start
    assert all(settled(command) for command in texts if command.text.startswith("./"))


def test_every_report_has_a_place_for_its_section(tmp_path: Path) -> None:
    """tests/evidence puts a section there, and nothing else."""
    page = tmp_path / "README.md"
    page.write_text((ROOT / "tests" / "README.md").read_text())
    script = (ROOT / "tests" / "evidence").read_text()
    copy = tmp_path / "evidence"
    copy.write_text(script)
    usage = (ROOT / "tests" / "report").read_text().splitlines()[2]
    names = re.search(r"tests/report ([a-z|]+)$", usage)
    assert names, usage
    for name in names[1].split("|"):
        where = "(commit 0123456789ab, 2 cores of X, 2026-01-02)"
        section = f'`./tests/report {name} --seed 1` {where}:\n\n```text\n{name}\n```\n\n`{{"a": 1}}`'
        put = subprocess.run([sys.executable, copy], input=section, capture_output=True, text=True, check=False)
        assert (put.returncode, put.stderr) == (0, ""), name
        assert page.read_text().count(section) == 1
    for wrong in ("", "a table\n{}", section.replace(names[1].split("|")[-1], "none", 1), section.replace("1}", "1")):
        before = page.read_text()
        put = subprocess.run([sys.executable, copy], input=wrong, capture_output=True, text=True, check=False)
        assert put.returncode == 1 and put.stderr.startswith("evidence: expected"), put
        assert page.read_text() == before
