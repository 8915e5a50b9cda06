"""What auditing in rotation under a budget costs: a Llama-like model of 25 million parameters trains 200 steps with
scope="rotate" and budget=0.02, the training on one core, the daemon on the other.

A watched and an unwatched model, alike in every bit, take blocks of BLOCK steps in turns. A block ends when all that
was sent is judged, so that nothing of the audit falls on the other model's steps. The ratio is that of all steps'
times, the first ones and the first audits included. The small form samples every other step instead: steps of
milliseconds cannot keep such a budget.
"""

import contextlib
import os
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from llama import LLAMA_25M, LLAMA_SMALL, Llama
from private_daemon import running

import plumbline

BLOCK = 10
BUDGET = 0.02


class Training:
    def __init__(self, shape: dict[str, int], rows: int) -> None:
        torch.manual_seed(0)
        self.model = Llama(**shape)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.draw = torch.Generator().manual_seed(1)
        self.size = (rows, shape["time"] + 1)
        self.vocabulary = shape["vocabulary"]
        self.seconds = self.cpu_seconds = 0.0

    def step(self) -> None:
        tokens = torch.randint(0, self.vocabulary, self.size, generator=self.draw)
        F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        start, cpu_start = time.perf_counter(), time.process_time()
        yield
        self.seconds += time.perf_counter() - start
        self.cpu_seconds += time.process_time() - cpu_start


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
            every=2 if small else BLOCK,
            scope="rotate",
            budget=None if small else BUDGET,
        )
        for _ in range(steps // BLOCK):
            with watched.timed():
                for _ in range(BLOCK):
                    with audit.step():
                        watched.step()
            if not audit.flush(600):
                raise RuntimeError("the daemon did not answer within 600 s")
            with plain.timed():
                for _ in range(BLOCK):
                    plain.step()
        verdicts, errors, missed = audit.verdicts(), audit.errors(), audit.missed()
        audit.close()
    if errors or missed or not verdicts:
        raise RuntimeError(f"{len(verdicts)} verdicts, {missed} steps missed, errors: {errors}")
    same = all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), watched.model.parameters(), strict=True))
    modules = verdicts[0].coverage.modules
    seen = {module.path for verdict in verdicts for module in verdict.coverage.audited_modules}
    outcomes = [verdict.verdict for verdict in verdicts]
    ratio = watched.seconds / plain.seconds
    lines = [
        f"Llama of {parameters / 1e6:.1f} million parameters, {steps} steps in rotation, "
        + ("every other one sampled" if small else f"a budget of {BUDGET:.0%}"),
        f"{'time over plain':34} {ratio:7.4f} x  ({plain.seconds / steps * 1e3:.0f} ms a step)  goal <= 1.03 x",
        f"{'processor time over plain':34} {watched.cpu_seconds / plain.cpu_seconds:7.4f} x",
        f"{'sampled steps':34} {len(verdicts)}: {', '.join(str(v.step) for v in verdicts)}",
        f"{'modules audited at least once':34} {len(seen)} of {modules}",
        f"{'verdicts':34} " + ", ".join(f"{outcomes.count(name)} {name}" for name in sorted(set(outcomes))),
        f"{'weights bitwise the same':34} {same}",
    ]
    return "\n".join(lines), {
        "rotate_time_ratio": round(ratio, 4),
        "rotate_modules": int(modules),
        "rotate_modules_audited": len(seen),
        "rotate_bitwise_identical": same,
    }
