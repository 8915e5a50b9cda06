"""Many pairs, in processes of their own with a daemon each, and what their answers add up to."""

from __future__ import annotations

import multiprocessing
import queue
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from .judge import FALSE, MISSED, RIGHT, UNANSWERED, Judged, judge
from .label import BELOW, REFUTED, TYPE_II, label_of
from .spec import MUTATIONS, REWRITES, Pair, draw_pair

sys.path.append(str(Path(__file__).resolve().parents[1] / "scenario"))
from private_daemon import running

PROCESSES = 2
CHUNK = 50  # Pairs that a process takes at a time.


@dataclass(frozen=True)
class Broken:
    """A pair that the generator got wrong: a rewrite that is none, or a program that does not run."""

    seed: int
    pair: Pair | None
    reason: str


Result = Judged | Broken


def one(seed: int, server: str) -> Result:
    pair = None
    try:
        pair = draw_pair(seed)
        label = label_of(pair)
        if label.expected == REFUTED:
            return Broken(seed, pair, f"a rewrite changed its program by {label.gap:.3g}")
        return judge(pair, server, True, label)
    except Exception:  # Whatever it is, it is shown, and the other pairs go on.
        return Broken(seed, pair, traceback.format_exc(limit=-3))


def many(seeds: Iterable[int], server: str) -> list[tuple[int, Result]]:
    torch.set_num_threads(1)  # Small tensors.
    return [(seed, one(seed, server)) for seed in seeds]


def _work(tasks: multiprocessing.Queue, results: multiprocessing.Queue) -> None:
    with running() as daemon:
        while (seeds := tasks.get()) is not None:
            results.put(many(seeds, daemon.address))


def sweep(seeds: range, processes: int = PROCESSES) -> list[tuple[int, Result]]:
    spawn = multiprocessing.get_context("spawn")
    tasks, results = spawn.Queue(), spawn.Queue()
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    for chunk in chunks:
        tasks.put(chunk)
    workers = [spawn.Process(target=_work, args=(tasks, results)) for _ in range(processes)]
    for worker in workers:
        tasks.put(None)
        worker.start()
    out: list[tuple[int, Result]] = []
    for _ in chunks:
        out += _next(results, workers)
    for worker in workers:
        worker.join()
    return sorted(out, key=lambda pair: pair[0])


def _next(results: multiprocessing.Queue, workers: list) -> list[tuple[int, Result]]:
    while True:
        try:
            return results.get(timeout=60)
        except queue.Empty:
            if any(worker.exitcode not in (None, 0) for worker in workers):
                raise RuntimeError("a process of the sweep died") from None


def figures(results: list[Result]) -> dict[str, object]:
    judged = [r for r in results if isinstance(r, Judged)]
    count = max(1, len(judged))
    found = [r for r in judged if r.label.expected == TYPE_II and not r.bits and r.verdict == TYPE_II]
    agreed = [r for r in judged if r.outcome == RIGHT and r.expected != BELOW]
    sure = [r for r in judged if r.expected != BELOW]
    latent = [r for r in judged if r.bits and r.label.expected == TYPE_II]  # Different programs, equal results.
    return {
        "pairs": len(judged),
        "rewrites": len({a.edit for r in judged for a in r.pair.rewrites}),
        "mutations": len({a.edit for r in judged for a in r.pair.mutations}),
        "false_type_ii": sum(r.outcome == FALSE for r in judged),
        "wrong_proven": sum(r.wrongly_proven for r in judged),
        "missed": sum(r.outcome == MISSED for r in judged),
        "inconclusive_pct": round(100 * sum(r.outcome == UNANSWERED for r in judged) / count, 3),
        "cause_pct": round(100 * sum(r.cause_right for r in agreed) / max(1, len(agreed)), 3),
        "located_pct": round(100 * sum(r.located for r in found) / max(1, len(found)), 3),
        "assert_close_correct": sum(r.assert_close == r.expected for r in sure),
        "fp64_rule_correct": sum(r.fp64_rule == r.expected for r in sure),
        "plumbline_correct": sum(r.outcome == RIGHT for r in sure),
        "labelled": len(sure),
        "latent_named_pct": round(100 * sum("latent_difference" in r.hazards for r in latent) / max(1, len(latent)), 3),
        "broken": sum(isinstance(r, Broken) for r in results),
    }


def signature(judged: Judged) -> str:
    """The class of a failure: what went wrong and the verdict's sentence without names and numbers."""
    sentence = re.sub(r"'[^']*'", "'...'", judged.sentence)
    sentence = re.sub(r"\b(loss|norm|(grad|new|state|m|v|ema):\w+)\b", "TAP", sentence)
    sentence = re.sub(r"(target|reference)\.py:\d+", "LINE", sentence)
    sentence = re.sub(r"suspect .*", "suspect ...", sentence)
    sentence = re.sub(r"\d[\d.e+-]*", "#", sentence)
    bits = ", equal bits" if judged.bits else ""
    return f"{judged.outcome} (expected {judged.expected}{bits}; {judged.grade} {judged.cause}): {sentence[:160]}"


def table(results: list[tuple[int, Result]]) -> str:
    """Failures by class, the largest first, and the edits with the most failures."""
    failing = [(seed, r) for seed, r in results if isinstance(r, Judged) and r.outcome != RIGHT]
    classes = Counter(signature(r) for _, r in failing)
    seeds = {signature(r): seed for seed, r in reversed(failing)}
    lines = ["pairs  class of failure (first seed)"]
    lines += [f"{n:5}  {name} ({seeds[name]})" for name, n in classes.most_common()]
    tried: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for _, r in results:
        if isinstance(r, Judged):
            edits = {a.edit for a in (*r.pair.target, *r.pair.reference)}
            tried.update(edits)
            failed.update(edits if r.outcome != RIGHT else ())
    lines += ["", "edits with failures: failed of tried"]
    lines += [f"{failed[e]:5} of {tried[e]:5}  {e}" for e, _ in failed.most_common() if failed[e]]
    unused = (REWRITES.keys() | MUTATIONS.keys()) - tried.keys()
    if unused:
        lines += ["", f"not drawn: {', '.join(sorted(unused))}"]
    for seed, r in results:
        if isinstance(r, Broken):
            lines.append(f"seed {seed}: {r.reason}")
    return "\n".join(lines)


def wrong(figures_: dict[str, object]) -> bool:
    return any(figures_[name] for name in ("false_type_ii", "wrong_proven", "missed", "broken"))
