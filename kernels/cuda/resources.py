"""What ptxas says of each CUDA kernel: registers, stack, shared memory and spills, a table for each source.

usage: resources.py record DIRECTORY COMMAND...    a compiler launcher: runs nvcc, writes DIRECTORY/SOURCE.tsv
       resources.py check DIRECTORY SOURCE...      prints the tables; exit status 1 where a kernel spills or none is
"""

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

COLUMNS = ("kernel", "arch", "registers", "stack", "shared", "spill_stores", "spill_loads")
NAMESPACES = re.compile(r"\bplumbline::(\w+::|\(anonymous namespace\)::)*")
OF_CUB = re.compile(r"\bcub::[^<]*?(\w+)<.*?\b(unsigned (?:int|long)|void)\b.*")  # By the type of its keys.
ENTRY = re.compile(r"Compiling entry function '(?P<kernel>[^']+)' for '(?P<arch>\w+)'")
FRAME = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes")
USED = re.compile(r"Used (?P<registers>\d+) registers(?:.* (?P<shared>\d+) bytes smem)?")


def rows_of(text: str) -> list[dict[str, str]]:
    """One row a kernel and architecture, from what `nvcc -Xptxas -v` prints."""
    rows: list[dict[str, str]] = []
    for line in text.splitlines():
        if entry := ENTRY.search(line):
            name = OF_CUB.sub(r"cub::\1<\2>", NAMESPACES.sub("", entry["kernel"]))
            name = name.removeprefix("void ").partition("(")[0]
            rows.append({**dict.fromkeys(COLUMNS, "0"), "kernel": name, "arch": entry["arch"]})
        elif rows and (frame := FRAME.search(line)):  # Of the entry, or of a function that it calls.
            for column, group in (("stack", "stack"), ("spill_stores", "stores"), ("spill_loads", "loads")):
                rows[-1][column] = str(int(rows[-1][column]) + int(frame[group]))
        elif rows and (used := USED.search(line)):
            rows[-1]["registers"], rows[-1]["shared"] = used["registers"], used["shared"] or "0"
    return rows


def record(directory: Path, command: list[str]) -> int:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    told = [line for line in done.stderr.splitlines(keepends=True) if "bytes" not in line and "ptxas info" not in line]
    sys.stderr.writelines(told if done.returncode == 0 else done.stderr)
    sources = [command[i + 1] for i, argument in enumerate(command[:-1]) if argument == "-c"]
    if done.returncode or not sources:
        return done.returncode
    text = done.stderr
    if shutil.which("c++filt"):
        text = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{Path(sources[-1]).name}.tsv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t")
        writer.writeheader()
        writer.writerows(rows_of(text))
    return 0


def read(directory: Path, sources: list[str]) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for source in sources:
        with (directory / f"{source}.tsv").open(newline="") as file:
            rows += csv.DictReader(file, delimiter="\t")
    return rows


def table(rows: list[dict[str, str]]) -> str:
    lines = [COLUMNS, *(tuple(row[column] for column in COLUMNS) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def check(directory: Path, sources: list[str]) -> int:
    rows = read(directory, sources)
    print(table(rows))
    spilling = [row for row in rows if int(row["spill_stores"]) or int(row["spill_loads"])]
    for row in spilling:
        print(f"spills registers: {row['kernel']} on {row['arch']}")
    if not rows:
        print("no kernel was recorded")
    return 1 if spilling or not rows else 0


def main() -> int:
    match sys.argv[1:]:
        case ["record", directory, *command] if command:
            return record(Path(directory), command)
        case ["check", directory, *sources] if sources:
            return check(Path(directory), sources)
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
