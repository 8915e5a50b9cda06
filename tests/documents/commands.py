"""The commands in our documents: every fenced block of shell or Python, and every command that a sentence names."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# What a sentence names in passing ("`plumb report` writes ...") is a command only where it is whole.
WHOLE = re.compile(
    r"\./|(promtool|apt|systemctl) |python -m \S+$|plumb ((jobs|verdicts|watch|ui|formats)\b|[a-z]\S* \S)"
)
LANGUAGES = {"sh", "python", "textproto", "text"}  # `text` is what a command prints.


@dataclass(frozen=True)
class Command:
    place: str  # FILE:LINE
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text.splitlines()[0]}"


def documents() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.split()]


def commands() -> list[Command]:
    return [command for document in documents() for command in commands_of(document)]


def commands_of(document: Path) -> list[Command]:
    text, name = document.read_text(), str(document.relative_to(ROOT))
    found = []

    def add(at: int, language: str, command: str) -> None:
        found.append(Command(f"{name}:{text.count(chr(10), 0, at) + 1}", language, command))

    for block in FENCE.finditer(text):
        language, content = block[1], block[2]
        if language not in LANGUAGES:
            raise ValueError(f"{name}: expected a block of {sorted(LANGUAGES)}, found {language!r}: {content[:40]!r}")
        if language == "sh":
            at = block.start(2)
            for line in content.splitlines(keepends=True):
                if line.strip():
                    add(at, "sh", re.sub(r"\s{2,}#.*", "", line.strip()))
                at += len(line)
        elif language != "text":
            add(block.start(2), language, content)
    prose = FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    for span in SPAN.finditer(prose):
        command = " ".join(span[1].split())
        if WHOLE.match(command) and not command.endswith("]"):
            add(span.start(), "sh", command)
    return found
