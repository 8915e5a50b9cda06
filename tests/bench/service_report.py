"""The report `service`: what a daemon that many share promises, tried: nothing lost, nothing silent, nobody let in, and
one client's steps cost one client."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / path) for path in ("tests/service", "tests/fuzz", "client/python")]
GROWTH_PCT_MAX = 10.0
RATIO_MAX = 2.0
HOSTILE_CALLS_PER_S_MIN = 15.0  # Of 8 hostile streams: with fewer, honest ones are beside nobody.

# Cases of tests: each is one attack, or one bad input, with what must come of it.
ATTACKS = [
    "test_attacks.py",
    "test_identity.py::test_the_listener_outlives_a_time_without_descriptors",
    "test_identity.py::test_connections_that_say_nothing_keep_nobody_out",
    "test_operators.py::test_queries_of_many_jobs_delay_no_stream",
    "test_operators.py::test_uploads_that_stall_hold_nobody",
]
BAD_INPUTS = [
    "test_stream_bad_input.py",
    "test_credentials.py::test_what_is_wrong_with_files_is_said_at_the_start",
    "test_credentials.py::test_a_daemon_that_is_not_what_it_says",
    "test_identity.py::test_the_configuration_is_checked_without_a_start",
    "test_operators.py::test_a_rule_of_retention_is_checked",
    "test_surroundings.py",
]
FEW_ATTACKS = ["test_attacks.py::test_claims_take_nothing_from_others"]
FEW_BAD_INPUTS = ["test_stream_bad_input.py::test_unknown_tensor", "test_stream_bad_input.py::test_negative_step"]


@dataclass
class Lengths:
    """What can be set by options of tests/report."""

    kill9_rounds: int = 200
    disk_full_rounds: int = 50
    fuzz_execs: int = 10_000_000
    soak_minutes: float = 60
    load_seconds: float = 60  # Of honest streams alone, as long with hostile ones, and with these elsewhere.


SMALL = Lengths(2, 1, 0, 0.05, 2)


def cases(names: list[str]) -> tuple[int, list[str]]:
    """How many cases there are, and which of them failed."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "cases.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={result}"]
        subprocess.run(
            [*command, *(str(ROOT / "tests" / "service" / name) for name in names)],
            cwd=ROOT,
            env=os.environ,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        all_cases = list(ET.parse(result).iter("testcase"))
    assert all_cases, f"no case among {names}"
    failed = [
        case for case in all_cases if any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
    ]
    return len(all_cases), [f"{case.get('classname')}.{case.get('name')}" for case in failed]


def fuzzed(executions: int) -> tuple[int, int | None, list[str]]:
    """Executions, crashes (None: nothing was fuzzed), and a line a target."""
    import fuzz

    if executions == 0:
        return 0, None, ["not fuzzed"]
    missing = [target for target in fuzz.targets() if fuzz.built(target) is None]
    if missing:
        return 0, None, [f"not fuzzed: not built: {', '.join(missing)} (cmake --build --preset fuzz; needs clang)"]
    outcomes = [fuzz.fuzz(target, max(1, round(executions * fuzz.SHARES[target])), None) for target in fuzz.targets()]
    return sum(each.executions for each in outcomes), sum(each.crashes for each in outcomes), [*map(str, outcomes)]


@dataclass
class Found:
    """What one part of the report came to."""

    lines: list[str]
    figures: dict
    held: bool


def kill9(small: bool, seed: int, lengths: Lengths) -> Found:
    import durability

    kill = durability.kill9(lengths.kill9_rounds, seed)
    line = f"kill -9: {kill.rounds} rounds, {kill.acked} acknowledged, {kill.acked_lost} lost, {kill.duplicates} twice"
    figures = {"kill9_rounds": kill.rounds, "acked_lost": kill.acked_lost, "duplicates": kill.duplicates}
    return Found([line, *kill.notes], figures, kill.acked_lost == kill.duplicates == 0)


def disk_full(small: bool, seed: int, lengths: Lengths) -> Found:
    import durability

    full = durability.disk_full(lengths.disk_full_rounds, seed)
    line = f"disk full: {full.rounds} rounds, {full.steps} steps, {full.refused} refused, {full.silent_gaps} silent"
    figures = {"acked_lost": full.acked_lost, "duplicates": full.duplicates}
    figures |= {"disk_full_rounds": full.rounds, "silent_gaps": full.silent_gaps}
    return Found([line, *full.notes], figures, full.acked_lost == full.duplicates == full.silent_gaps == 0)


def fuzzing(small: bool, seed: int, lengths: Lengths) -> Found:
    executions, crashes, lines = fuzzed(lengths.fuzz_execs)
    figures = {"fuzz_execs": executions, "fuzz_crashes": crashes}
    return Found([f"fuzzing: {line}" for line in lines], figures, not crashes)


def attacks(small: bool, seed: int, lengths: Lengths) -> Found:
    count, lost = cases(FEW_ATTACKS if small else ATTACKS)
    figures = {"attacks": count, "attacks_survived": count - len(lost)}
    return Found([f"attacks: {count}, of which not survived: {lost}"], figures, not lost)


def bad_inputs(small: bool, seed: int, lengths: Lengths) -> Found:
    count, unclear = cases(FEW_BAD_INPUTS if small else BAD_INPUTS)
    figures = {"bad_inputs": count, "clear_errors": count - len(unclear)}
    return Found([f"bad inputs: {count}, of which without a clear error: {unclear}"], figures, not unclear)


def streams(small: bool, seed: int, lengths: Lengths) -> Found:
    import load

    count, attackers = (8, 2) if small else (64, 8)
    beside = load.beside(count, attackers, lengths.load_seconds)
    ratio = beside.attacked_s / beside.alone_s
    lines = [
        f"streams: {beside.steps} steps; 99 % within {1000 * beside.alone_s:.0f} ms alone, "
        f"{1000 * beside.attacked_s:.0f} ms beside {attackers} hostile ones, {1000 * beside.elsewhere_s:.0f} ms while "
        "these attack another daemon of the machine",
        "what hostile clients compute themselves runs when nothing else would (SCHED_IDLE): "
        f"{beside.hostile_calls_per_s:.1f} calls and {beside.hostile_bytes_per_s / 1000:.0f} kB a second of theirs "
        f"reach the daemon (at least {HOSTILE_CALLS_PER_S_MIN:.0f} calls must)",
        f"where they compete with all for the processors: 99 % within {1000 * beside.competing_s:.0f} ms, "
        f"{beside.competing_calls_per_s:.1f} calls a second",
    ]
    figures = {"streams": beside.streams, "streams_ok": beside.streams_ok, "hostile_streams": attackers}
    figures["p99_verdict_ratio"] = round(ratio, 2)
    figures["p99_elsewhere_ratio"] = round(beside.elsewhere_s / beside.alone_s, 2)
    figures["p99_competing_ratio"] = round(beside.competing_s / beside.alone_s, 2)
    figures["hostile_calls_per_s"] = round(beside.hostile_calls_per_s, 1)
    figures["hostile_kb_per_s"] = round(beside.hostile_bytes_per_s / 1000)
    # Of seconds, the figures say nothing.
    attacked = beside.hostile_calls_per_s >= HOSTILE_CALLS_PER_S_MIN
    held = beside.streams_ok == beside.streams and (small or (attacked and ratio <= RATIO_MAX))
    return Found([*lines, *beside.failures], figures, held)


def strangers(small: bool, seed: int, lengths: Lengths) -> Found:
    import unauthorised

    tries = unauthorised.try_all()
    let_in = [str(attempt) for attempt in tries if attempt.let_in]
    figures = {"unauthorised_attempts": len(tries), "unauthorised_let_in": len(let_in)}
    return Found([f"unauthorised: {len(tries)} attempts, of which let in: {let_in}"], figures, not let_in)


def soak(small: bool, seed: int, lengths: Lengths) -> Found:
    import load

    ran = load.soak(lengths.soak_minutes, 4 if small else 16)
    line = f"soak: {ran.minutes} min, {ran.steps} steps, {ran.rss_mib:.0f} MiB, {ran.rss_growth_pct:+.1f} %"
    figures = {"soak_minutes": ran.minutes, "rss_growth_pct": round(ran.rss_growth_pct, 1)}
    return Found([line], figures, small or ran.rss_growth_pct <= GROWTH_PCT_MAX)


PARTS: dict[str, Callable[[bool, int, Lengths], Found]] = {
    **{"kill9": kill9, "disk_full": disk_full, "fuzzing": fuzzing, "attacks": attacks, "bad_inputs": bad_inputs},
    **{"streams": streams, "strangers": strangers, "soak": soak},
}
FIGURES = (
    *("kill9_rounds", "acked_lost", "duplicates", "disk_full_rounds", "silent_gaps", "fuzz_execs", "fuzz_crashes"),
    *("attacks", "attacks_survived", "bad_inputs", "clear_errors", "streams", "streams_ok", "hostile_streams"),
    *("p99_verdict_ratio", "p99_elsewhere_ratio", "p99_competing_ratio", "hostile_calls_per_s", "hostile_kb_per_s"),
    *("unauthorised_attempts", "unauthorised_let_in", "soak_minutes", "rss_growth_pct"),
)
OF_BOTH = ("acked_lost", "duplicates")  # Counted by two parts.


def measure(small: bool, seed: int | None, lengths: Lengths, only: Sequence[str] = ()) -> tuple[str, dict]:
    """`only`: names of PARTS; none: all of them. The figures of a part that did not run are None."""
    rows: list[str] = []
    figures: dict = dict.fromkeys(FIGURES)
    held = True
    for name, part in PARTS.items():
        if only and name not in only:
            continue
        found = part(small, 1 if seed is None else seed, lengths)
        for line in found.lines:
            print(line, file=sys.stderr, flush=True)
        rows += found.lines
        for key, value in found.figures.items():
            figures[key] = (figures[key] or 0) + value if key in OF_BOTH else value
        held &= found.held
    return "\n".join(rows), {**figures, "passed": held}
