"""What watching costs a training job, measured on a GPT of over 10 million parameters.

The training has one core, the daemon the other. A watched and an unwatched model, alike in every bit, take the same
steps in turns, so that whatever else the machine does falls on both. The steps go in rounds of ROUND, of which the
watched model has the first one audited: its sender thread goes on during the steps that follow, and these pay for it.
"""

import os
import statistics
import time

import torch
import torch.nn.functional as F
from gpt import GPT
from private_daemon import running

import plumbline

ROUND = 10  # Steps, the first of them audited.


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def median_interval(values: list[float]) -> tuple[float, float]:
    """An interval that holds the median in at least 95 of 100 cases, by order statistics (binomial, p = 1/2)."""
    ordered, n = sorted(values), len(values)
    half = 0.98 * n**0.5  # 1.96 standard deviations of a binomial count.
    return ordered[max(0, int(n / 2 - half))], ordered[min(n - 1, int(n / 2 + half) + 1)]


class Training:
    def __init__(self, width: int, layers: int, rows: int) -> None:
        torch.manual_seed(0)
        self.model = GPT(width=width, layers=layers, heads=width // 64)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.draw = torch.Generator().manual_seed(1)
        self.rows = rows

    def step(self) -> None:
        tokens = torch.randint(0, 256, (self.rows, 65), generator=self.draw)
        loss = F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def timed(self) -> float:
        start = time.perf_counter()
        self.step()
        return time.perf_counter() - start


def measure(small: bool) -> tuple[str, dict]:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    torch.set_num_threads(1)
    size = {"width": 128, "layers": 2, "rows": 2} if small else {"width": 384, "layers": 6, "rows": 4}
    rounds = 5 if small else 30
    plain, watched = Training(**size), Training(**size)
    parameters = sum(p.numel() for p in plain.model.parameters())
    with running(cores={cores[-1]}) as daemon:
        audit = plumbline.watch(watched.model, watched.optimizer, daemon.address, job="overhead", every=ROUND)

        def watched_step() -> float:
            start = time.perf_counter()
            with audit.step():
                watched.step()
            return time.perf_counter() - start

        idle, audited, extra = [], [], []
        for number in range(rounds + 2):
            plain_s, watched_s = [], []
            for turn in range(ROUND):
                # Who goes first alternates: the second of two finds warmer or colder caches.
                if (number + turn) % 2:
                    plain_s.append(plain.timed())
                    watched_s.append(watched_step())
                else:
                    watched_s.append(watched_step())
                    plain_s.append(plain.timed())
            if not audit.flush(300):
                raise RuntimeError("the daemon did not answer within 300 s")
            # With all sent and judged, steps that are not sampled differ by what watching itself costs.
            step_s = statistics.median(plain_s)
            if number < 2:
                continue  # Warming up: round 0 has no audited step, round 1 the first one, which fills the pools.
            audited.append(watched_s[0] / step_s)
            extra.append((sum(watched_s) - sum(plain_s)) / (100 * step_s))
            idle += [w / p - 1 for w, p in zip(watched_s[ROUND // 2 :], plain_s[ROUND // 2 :], strict=True)]
        verdicts = audit.verdicts()
        audit.close()
    same = all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), watched.model.parameters(), strict=True))
    if len(verdicts) < rounds + 1:
        raise RuntimeError(f"{len(verdicts)} verdicts of {rounds + 1} audited steps: some were dropped")

    lines = [f"GPT of {parameters / 1e6:.1f} million parameters, {rounds} rounds of {ROUND} steps, one core each"]
    for name, values, unit, limit in (
        ("a step that is not sampled", [100 * v for v in idle], "%", 0.5),
        ("sampled 1 in 100, per step", [100 * v for v in extra], "%", 2.0),
        ("an audited step over a plain one", audited, "x", 3.0),
    ):
        low, high = median_interval(values)
        lines.append(
            f"{name:34} median {statistics.median(values):7.3f} {unit}  [{low:.3f}, {high:.3f}]  goal <= {limit} {unit}"
        )
    lines.append(f"{'weights bitwise the same':34} {same}")
    return "\n".join(lines), {
        "idle_pct": round(100 * statistics.median(idle), 3),
        "sampled_1_in_100_pct": round(100 * statistics.median(extra), 3),
        "audited_step_ratio": round(statistics.median(audited), 3),
        "bitwise_identical": same,
    }
