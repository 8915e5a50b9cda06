"""The reports. See tests/report for their use."""

import argparse
import json
import os
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "scenario"), str(ROOT / "deploy" / "lib")]


def report_scenarios(small: bool, seed: int | None) -> tuple[str, dict]:
    from judge import base_cases, judge_with_rivals, random_cases, summary, table
    from private_daemon import running
    from scenario import TYPE_II, scenarios

    if not small:
        os.environ.setdefault("PLUMBLINE_SCENARIO_COMPILER", "inductor")
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    draw = random.Random(seed)
    cases = [case for s in scenarios() for case in (*base_cases(s), *([] if small else random_cases(s, draw)))]
    results = []
    with running() as daemon:
        for case in cases:
            result = judge_with_rivals(case, daemon.address)
            results.append(result)
            placed = result.located or case.label != TYPE_II
            if not (result.cause_correct and placed):
                wrong = "wrong" if not result.correct else "wrong cause" if placed else "not located"
                print(f"{wrong}: {case.name} size {case.size} seed {case.seed}\n{result.verdict}", file=sys.stderr)
    return f"{table(results)}\n\nrandom seeds and sizes drawn from --seed {seed}", summary(results)


def report_overhead(small: bool, seed: int | None) -> tuple[str, dict]:
    from overhead import measure
    from rotation import measure_rotation

    affinity = os.sched_getaffinity(0)
    text, figures = measure(small)
    os.sched_setaffinity(0, affinity)  # Which measuring narrows.
    more, rotating = measure_rotation(small)
    return f"{text}\n\n{more}", {**figures, **rotating}


def report_speed(small: bool, seed: int | None) -> tuple[str, dict]:
    from speed import measure

    return measure(small)


def report_power(small: bool, seed: int | None) -> tuple[str, dict]:
    sys.path.insert(0, str(ROOT / "tests" / "bench" / "power"))
    from power import measure

    return measure(small)


def report_coverage(small: bool, seed: int | None) -> tuple[str, dict]:
    sys.path.insert(0, str(ROOT / "tests" / "bench" / "coverage"))
    from coverage import measure

    return measure(seed)  # All models, small as they are.


def report_soundness(small: bool, seed: int | None) -> tuple[str, dict]:
    from proofs import soundness

    return soundness(small, seed)


def report_tightness(small: bool, seed: int | None) -> tuple[str, dict]:
    from proofs import tightness

    return tightness(small, seed)


def report_gpu(small: bool, seed: int | None) -> tuple[str, dict]:
    from gpu import measure

    return measure()


REPORTS = {
    "scenarios": report_scenarios,
    "overhead": report_overhead,
    "speed": report_speed,
    "power": report_power,
    "coverage": report_coverage,
    "soundness": report_soundness,
    "tightness": report_tightness,
    "gpu": report_gpu,
}


def is_wrong(figures: dict) -> bool:
    """Whether a report has found that a claim does not hold."""
    power = min(figures.get("flagged", 0), figures.get("located", 0)) < 0.95 * figures.get("mutants", 0)
    scenarios = figures.get("correct") != figures.get("scenarios")
    claims = ("bitwise_identical", "rotate_bitwise_identical", "resolutions_hold")
    return power or scenarios or any(figures.get(claim) is False for claim in claims)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/report", description=__doc__)
    parser.add_argument("name", choices=REPORTS)
    parser.add_argument("--small", action="store_true", help="fewer and smaller cases")
    parser.add_argument("--seed", type=int, help="of the random cases")
    options = parser.parse_args()
    text, figures = REPORTS[options.name](options.small, options.seed)
    passed = figures.pop("passed", True)
    print(text)
    print(json.dumps(figures))
    return 0 if passed and not is_wrong(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
