"""The reports. See tests/report for their use."""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "scenario"), str(ROOT / "deploy" / "lib")]


def report_scenarios(small: bool, seed: int | None) -> tuple[str, dict]:
    from judge import DRAW_SEED, base_cases, cases, judge_with_rivals, summary, table
    from private_daemon import running
    from scenario import TYPE_II, scenarios

    if not small:
        os.environ.setdefault("PLUMBLINE_SCENARIO_COMPILER", "inductor")
    seed = DRAW_SEED if seed is None else seed
    results = []
    with running() as daemon:
        drawn = [case for s in scenarios() for case in (base_cases(s) if small else cases(s, seed=seed))]
        for case in drawn[::12] if small else drawn:  # All base cases are tests of their own.
            result = judge_with_rivals(case, daemon.address)
            results.append(result)
            placed = result.located or case.label != TYPE_II or case.variant in case.scenario.unplaced
            if not result.values_correct and result.values is not None:
                hides = "hidden" if result.values.hides(case.label) else "wrong"
                print(f"{hides} by bare values: {case.name} size {case.size} seed {case.seed}", file=sys.stderr)
                print(result.values.verdict, file=sys.stderr)
            if not (result.cause_correct and placed):
                wrong = "wrong" if not result.correct else "wrong cause" if placed else "not located"
                print(f"{wrong}: {case.name} size {case.size} seed {case.seed}\n{result.verdict}", file=sys.stderr)
    return f"{table(results)}\n\nrandom seeds and sizes drawn from --seed {seed}", summary(results)


def report_overhead(small: bool, seed: int | None) -> tuple[str, dict]:
    from captured import measure_captured
    from overhead import measure
    from rotation import measure_rotation

    affinity = os.sched_getaffinity(0)
    text, figures = measure(small)
    os.sched_setaffinity(0, affinity)  # Which measuring narrows.
    more, rotating = measure_rotation(small)
    captured, per_operation = measure_captured(small)
    return f"{text}\n\n{more}\n\n{captured}", {**figures, **rotating, **per_operation}


def report_speed(small: bool, seed: int | None, profile: bool = False) -> tuple[str, dict]:
    from speed import measure

    return measure(small, profile)


def report_power(small: bool, seed: int | None) -> tuple[str, dict]:
    sys.path.insert(0, str(ROOT / "tests" / "bench" / "power"))
    from power import measure

    return measure(small)


def report_coverage(small: bool, seed: int | None) -> tuple[str, dict]:
    sys.path.insert(0, str(ROOT / "tests" / "bench" / "coverage"))
    from coverage import measure

    return measure(small, seed)


def report_soundness(small: bool, seed: int | None) -> tuple[str, dict]:
    from proofs import soundness

    return soundness(small, seed)


def report_tightness(small: bool, seed: int | None) -> tuple[str, dict]:
    from proofs import tightness

    return tightness(small, seed)


def report_equivalence(small: bool, seed: int | None, pairs: int | None = None) -> tuple[str, dict]:
    sys.path.insert(0, str(ROOT / "tests"))
    from equivalence.report import measure

    return measure(small, seed, pairs)


def report_gpu(small: bool, seed: int | None) -> tuple[str, dict]:
    from gpu import measure

    return measure()


def report_operators(small: bool, seed: int | None) -> tuple[str, dict]:
    from operators import measure

    return measure(small, seed)


def report_programs(small: bool, seed: int | None) -> tuple[str, dict]:
    from programs.report import measure

    return measure(small, seed)


def report_observability(small: bool, seed: int | None) -> tuple[str, dict]:
    from observability_report import measure

    return measure()


def report_sizing(small: bool, seed: int | None) -> tuple[str, dict]:
    from sizing import measure

    return measure(small)


def report_scaleout(small: bool, seed: int | None) -> tuple[str, dict]:
    from scaleout import measure

    return measure(small, seed)


def report_upgrade(small: bool, seed: int | None, **more: str) -> tuple[str, dict]:
    from upgrade import measure

    return measure(small, more.get("from"))


def report_people(small: bool, seed: int | None, pictures: Path | None = None) -> tuple[str, dict]:
    from people import measure

    return measure(small, pictures)


def report_service(small: bool, seed: int | None, only: tuple[str, ...] = (), **lengths: float) -> tuple[str, dict]:
    from service_report import SMALL, Lengths, measure

    return measure(small, seed, dataclasses.replace(SMALL if small else Lengths(), **lengths), only)


def parts_of_service(text: str) -> tuple[str, ...]:
    """The parts that a list with commas names."""
    from service_report import PARTS

    unknown = [name for name in text.split(",") if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(PARTS)}, found {unknown[0]!r}")
    return tuple(text.split(","))


REPORTS = {
    "scenarios": report_scenarios,
    "overhead": report_overhead,
    "speed": report_speed,
    "power": report_power,
    "coverage": report_coverage,
    "soundness": report_soundness,
    "tightness": report_tightness,
    "equivalence": report_equivalence,
    "gpu": report_gpu,
    "operators": report_operators,
    "programs": report_programs,
    "observability": report_observability,
    "service": report_service,
    "people": report_people,
    "sizing": report_sizing,
    "scaleout": report_scaleout,
    "upgrade": report_upgrade,
}


RIVALS_OF_VALUES = ("assert_close_correct", "fp64_rule_correct", "interval_correct", "perturbation_correct")


LENGTHS = {
    **{"kill9_rounds": int, "disk_full_rounds": int, "fuzz_execs": int},
    **{"soak_minutes": float, "load_seconds": float},
}


def is_wrong(figures: dict) -> bool:
    """Whether a report has found that a claim does not hold."""
    power = min(figures.get("flagged", 0), figures.get("located", 0)) < 0.95 * figures.get("mutants", 0)
    scenarios = figures.get("correct") != figures.get("scenarios")
    claims = ("bitwise_identical", "rotate_bitwise_identical", "resolutions_hold", "first_type_ii_alerts")
    false_values = figures.get("values_false_type_i", 0) + figures.get("values_false_type_ii", 0)
    wrong = figures.get("controls_missed", 0) + figures.get("unjudged", 0) + figures.get("bitwise_changed", 0)
    wrong += figures.get("left_without_reason", 0)
    wrong += figures.get("false_type_ii", 0) if {"operators", "programs"} & figures.keys() else 0
    wrong += figures.get("panels", 0) != figures.get("panels_with_data", 0)
    wrong += figures.get("rules", 0) != figures.get("rules_tested", 0)
    rivals = max((count for key, count in figures.items() if key in RIVALS_OF_VALUES), default=0)
    values = false_values > 0 or figures.get("values_correct", rivals) < rivals
    return power or scenarios or values or wrong > 0 or any(figures.get(claim) is False for claim in claims)


def default_device(name: str | None) -> contextlib.AbstractContextManager:
    if name is None:
        return contextlib.nullcontext()
    import torch

    return torch.device(name)


def commit() -> str:
    """What is checked out, and whether files differ from it."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=, with changes"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip() or "unknown"


def markdown(command: str, of: str, text: str, figures: dict) -> str:
    """A report as a document has it: the command, where and when it ran, its table, its figures."""
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    machine = f"{os.cpu_count()} cores of {cpu[1] if cpu else platform.machine()}"
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    where = f"commit {of}, {machine}, {date}"
    return f"`{command}` ({where}):\n\n```text\n{text}\n```\n\n`{json.dumps(figures)}`"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/report", description=__doc__)
    parser.add_argument("name", choices=REPORTS)
    parser.add_argument("--small", action="store_true", help="fewer and smaller cases")
    parser.add_argument("--markdown", action="store_true", help="a section of a document, in place of table and line")
    parser.add_argument("--seed", type=int, help="of the random cases")
    parser.add_argument("--pairs", type=int, help="how many, of `equivalence`")
    parser.add_argument("--pictures", type=Path, help="folder for pictures of the page, of `people`")
    parser.add_argument("--device", help="PyTorch's default device, of `operators` and `programs`: cuda")
    parser.add_argument("--profile", action="store_true", default=None, help="where the time goes, of `speed`")
    parser.add_argument("--from", help="the older commit, of `upgrade`; the last release's")
    parser.add_argument("--only", type=parts_of_service, help="parts of `service`, with commas between")
    for name, kind in LENGTHS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help="of `service`, as its name says")
    options = parser.parse_args()
    more = {}
    goes_with = {"pairs": "equivalence", "pictures": "people", "profile": "speed", "only": "service", "from": "upgrade"}
    for name, report in (*goes_with.items(), *((name, "service") for name in LENGTHS)):
        if getattr(options, name) is not None:
            more[name] = getattr(options, name)
            if options.name != report:
                parser.error(f"--{name.replace('_', '-')} goes with {report}")
    if options.device is not None and options.name not in ("operators", "programs"):
        parser.error("--device goes with operators and programs")
    began_at = commit()  # A report may take hours, in which the checkout moves on.
    with default_device(options.device):
        text, figures = REPORTS[options.name](options.small, options.seed, **more)
    passed = figures.pop("passed", True)
    if options.markdown:
        given = (each for each in sys.argv[1:] if each != "--markdown")
        print(markdown(" ".join(["./tests/report", *given]), began_at, text, figures))
    else:
        print(text)
        print(json.dumps(figures))
    return 0 if passed and not is_wrong(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
