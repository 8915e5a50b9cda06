"""What auditing in rotation under a budget costs: a Llama-like model of 25 million parameters trains 200 steps with
scope="rotate" and budget=0.02, the training on one core, the daemon on the other.

A watched and an unwatched model, alike in every bit, take turns of TURN steps, so that a machine that drifts slows
both; a turn with a sampled step goes on until it is judged, and the unwatched model's is as long, so that nothing of
the audit falls on the other model's steps. The ratio is that of all steps' times, the first ones and the first audits
included; its interval is of two standard errors, from the differences between turns. The small form samples every
other step instead, and waits for the verdicts: steps of milliseconds cannot keep such a budget.
"""

import os
import statistics
import time

import torch
import torch.nn.functional as F
from llama import LLAMA_25M, LLAMA_SMALL, Llama
from private_daemon import running

import plumbline
from plumbline.watch import Audit

TURN = 4  # So short that most periods between the watched model's steps hold no other step.
EVERY = 10
BUDGET = 0.02


class Training:
    def __init__(self, shape: dict[str, int], rows: int) -> None:
        torch.manual_seed(0)
        self.model = Llama(**shape)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.draw = torch.Generator().manual_seed(1)
        self.size = (rows, shape["time"] + 1)
        self.vocabulary = shape["vocabulary"]
        self.turns: list[tuple[float, float]] = []  # Seconds, and processor seconds of the whole process.

    def step(self) -> None:
        tokens = torch.randint(0, self.vocabulary, self.size, generator=self.draw)
        F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def turn(self, steps: int, audit: Audit | None = None, on: bool = False) -> int:
        """Runs that many steps; `on`: and more while the daemon has an audited one. Returns how many."""
        start, cpu_start, count = time.perf_counter(), time.process_time(), 0
        while count < steps or (on and audit is not None and not audit.flush(0)):
            if audit is None:
                self.step()
            else:
                with audit.step():
                    self.step()
            count += 1
        self.turns.append((time.perf_counter() - start, time.process_time() - cpu_start))
        return count

    def seconds(self) -> float:
        return sum(turn[0] for turn in self.turns)


def over(watched: list[float], plain: list[float]) -> tuple[float, float]:
    """The ratio of the sums, and two of its standard errors."""
    ratio = sum(watched) / sum(plain)
    spread = statistics.stdev(w - ratio * p for w, p in zip(watched, plain, strict=True))
    return ratio, 2 * spread * len(plain) ** 0.5 / sum(plain)


def measure_rotation(small: bool) -> tuple[str, dict]:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    torch.set_num_threads(1)
    shape, rows, steps = (LLAMA_SMALL, 2, 40) if small else (LLAMA_25M, 4, 200)
    plain, watched = Training(shape, rows), Training(shape, rows)
    parameters = sum(p.numel() for p in plain.model.parameters())
    for training in (plain, watched):  # What PyTorch sets up at first use is not counted.
        training.step()
    with running(cores={cores[-1]}) as daemon:
        audit = plumbline.watch(
            watched.model,
            watched.optimizer,
            daemon.address,
            job="rotation",
            every=2 if small else EVERY,
            scope="rotate",
            budget=None if small else BUDGET,
        )
        done = 0
        while done < steps:
            count = watched.turn(min(TURN, steps - done), audit, on=not small)
            if not audit.flush(600):
                raise RuntimeError("the daemon did not answer within 600 s")
            done += plain.turn(count)
        verdicts, errors, missed = audit.verdicts(), audit.errors(), audit.missed()
        audit.close()
    if errors or missed or not verdicts:
        raise RuntimeError(f"{len(verdicts)} verdicts, {missed} steps missed, errors: {errors}")
    same = all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), watched.model.parameters(), strict=True))
    modules = verdicts[0].coverage.modules
    seen = {module.path for verdict in verdicts for module in verdict.coverage.audited_modules}
    outcomes = [verdict.verdict for verdict in verdicts]
    (ratio, error), (cpu_ratio, cpu_error) = (
        over([turn[kind] for turn in watched.turns], [turn[kind] for turn in plain.turns]) for kind in (0, 1)
    )
    lines = [
        f"Llama of {parameters / 1e6:.1f} million parameters, {done} steps in rotation, "
        + ("every other one sampled" if small else f"a budget of {BUDGET:.0%}"),
        f"{'time over plain':34} {ratio:7.4f} x  +- {error:.4f}  goal <= 1.03 x",
        f"{'a plain step':34} {plain.seconds() / done * 1e3:7.0f} ms",
        f"{'processor time over plain':34} {cpu_ratio:7.4f} x  +- {cpu_error:.4f}",
        f"{'sampled steps':34} {len(verdicts)}: {', '.join(str(v.step) for v in verdicts)}",
        f"{'modules audited at least once':34} {len(seen)} of {modules}",
        f"{'verdicts':34} " + ", ".join(f"{outcomes.count(name)} {name}" for name in sorted(set(outcomes))),
        f"{'weights bitwise the same':34} {same}",
    ]
    return "\n".join(lines), {
        "rotate_time_ratio": round(ratio, 4),
        "rotate_time_ratio_error": round(error, 4),
        "rotate_processor_ratio": round(cpu_ratio, 4),
        "rotate_modules": int(modules),
        "rotate_modules_audited": len(seen),
        "rotate_bitwise_identical": same,
    }
