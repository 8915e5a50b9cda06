"""Where the daemon's time goes: shares of an audit by pass and by kind of work, sampled with Linux's perf.

A pass is what a stage of the audit does (server/bound), a kind is what the processor does there. Threads of the pool
work for whichever pass waits for them, which their stacks do not tell: passes are those of the threads that wait, two
where passes of a pair are made at once.
"""

import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

# The first of which a function in the stack, from the outermost on, matches.
PASSES = {
    "replay of the reference": r"replay_pair|replay_reference|match_programs|match_replays",
    "sweep of the reference": r"Gap::|pair_with_reference",
    "sweep": r"adjoint_envelopes",
    "enclosures": r"judge_between_observed|add_plain_intervals|Enclosures",
    "hazards and checks": r"\blook\b|HazardSearch|check_guards",
    "values of a reference": r"judge_values",
    "replay": r"Replay::|::replay\b",
}
# The first of which a function in the stack, from the innermost on, matches.
KINDS = {
    "waiting": r"futex|cond_wait|schedule|poll",
    "allocation": r"page_fault|mmap|munmap|madvise|malloc|_int_free|clear_page|\bfree\b|operator (new|delete)",
    "hashing": r"sha256|SHA256|digest|crc32|xxh",
    "decoding": r"[dD]ecode",
    "products": r"gemm|matmul",
}
OTHER_PASS, OTHER_KIND = "receiving, storing, the rest", "elementwise and reductions"


def _first(names: list[str], rules: dict[str, str], other: str) -> str:
    for name in names:
        for label, pattern in rules.items():
            if re.search(pattern, name):
                return label
    return other


def shares(script: str) -> tuple[Counter, Counter]:
    """Samples by pass, and by kind of work, of what `perf script -F ip,sym` prints."""
    passes, kinds = Counter(), Counter()
    for stack in script.split("\n\n"):
        names = [line.split(maxsplit=1)[1] for line in stack.strip().splitlines() if len(line.split(maxsplit=1)) > 1]
        if not names:
            continue
        kinds[_first(names, KINDS, OTHER_KIND)] += 1
        if any("audit_step" in name or "compute_bounds" in name for name in names):
            passes[_first(names[::-1], PASSES, OTHER_PASS)] += 1
    return passes, kinds


class Profile:
    """Samples a process between `with`'s ends; `table()` afterwards."""

    def __init__(self, pid: int) -> None:
        if shutil.which("perf") is None:
            raise RuntimeError("--profile needs perf (Debian package linux-perf)")
        self._folder = tempfile.TemporaryDirectory(prefix="plumbline.")
        self._data = Path(self._folder.name) / "perf.data"
        self._command = ["perf", "record", "--call-graph", "dwarf,24000", "-F", "149", "-o", str(self._data)]
        self._command += ["-p", str(pid)]

    def __enter__(self) -> "Profile":
        self._perf = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *raised: object) -> None:
        self._perf.send_signal(signal.SIGINT)
        self._perf.wait(60)

    def table(self) -> list[str]:
        command = ["perf", "script", "-i", str(self._data), "--no-inline", "-F", "ip,sym"]
        script = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = []
        for title, found in zip(("by pass", "by kind of work"), shares(script), strict=True):
            lines.append(f"  {title}")
            total = max(1, found.total())
            lines += [f"    {label:32} {count / total:6.1%}" for label, count in found.most_common()]
        return lines
