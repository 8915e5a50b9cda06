"""What capturing an operation costs the training thread, in processor time: an audited step beside a plain one.

  capture_us_per_op  microseconds beyond the plain step for each operation in the trace, of the costlier of two programs

Both programs are made of many small operations, so that next to nothing of it is copying. What PyTorch itself takes to
call a dispatch mode that only passes operations on is a part of it, and shown.
"""

import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from gpt import GPT
from private_daemon import running
from torch.utils._python_dispatch import TorchDispatchMode

from plumbline.job import open_request
from plumbline.payload import Pool
from plumbline.plan import Plan
from plumbline.step import StepCapture
from plumbline.transport import Transport

PARTS = ("entering", "forward", "backward", "optimizer", "leaving")


@dataclass
class Program:
    name: str
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[], torch.Tensor]
    marks: list[float] = field(default_factory=list)  # Processor time of the thread when each part of a step ended.

    def mark(self) -> None:
        self.marks.append(time.thread_time())

    def step(self) -> None:
        self.mark()
        loss = self.loss()
        self.mark()
        loss.backward()
        self.mark()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.mark()

    def timed(self, watching: Callable[[], object] | None = None) -> list[float]:
        """Seconds of each part of a step, run under the context that `watching` makes."""
        self.marks.clear()
        self.mark()
        if watching is None:
            self.step()
        else:
            with watching():
                self.step()
        self.mark()
        return [end - begin for begin, end in zip(self.marks, self.marks[1:], strict=False)]


class _PassesOn(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _perceptron(small: bool) -> Program:
    torch.manual_seed(0)
    layers = [layer for _ in range(4 if small else 90) for layer in (torch.nn.Linear(32, 32), torch.nn.Tanh())]
    model, data = torch.nn.Sequential(*layers), torch.randn(8, 32)
    return Program(
        "perceptron, Adam",
        model,
        torch.optim.Adam(model.parameters(), foreach=False),
        lambda: model(data).square().mean(),
    )


def _gpt(small: bool) -> Program:
    torch.manual_seed(0)
    model = GPT(width=32, layers=1 if small else 12, heads=4)
    tokens = torch.randint(0, 256, (2, 17))
    return Program(
        "GPT, AdamW",
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False),
        lambda: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()),
    )


def _plan(address: str) -> Plan:
    request = open_request("default", f"capture-{uuid.uuid4().hex[:8]}", "plan", 0, None, False, None, None)
    transport = Transport(address, request, lambda *_: None, lambda *_: None, lambda *_: None)
    try:
        if not transport.wait_open(30) or transport.plan is None:
            raise RuntimeError("the daemon gave no plan within 30 s")
        return transport.plan
    finally:
        transport.close(0)


def _measure(program: Program, plan: Plan, rounds: int) -> tuple[float, list[str]]:
    """Microseconds per operation, and what to print."""
    pool, last = Pool(), []

    def watching() -> StepCapture:
        last[:] = [StepCapture(plan, pool, [program.model], [program.optimizer])]
        return last[0]

    plain, passing, audited = [], [], []
    for number in range(rounds + 2):  # Alternating, so that what else the machine does falls on all. Two warm up.
        plain_s, passing_s, audited_s = program.timed(), program.timed(_PassesOn), program.timed(watching)
        if last[0].failure is not None:
            raise RuntimeError(f"{program.name}: {last[0].failure}")
        operations = sum(record[0] == "op" for record in last[0].records)
        last[0].recorder.arena.release()
        if number >= 2:
            plain.append(plain_s)
            passing.append(passing_s)
            audited.append(audited_s)

    def median(of: list[list[float]], part: int) -> float:
        return statistics.median(seconds[part] for seconds in of)

    def total(of: list[list[float]]) -> float:
        return statistics.median(sum(seconds) for seconds in of)

    us = 1e6 / operations
    cost = us * (total(audited) - total(plain))
    spread = statistics.quantiles((us * (sum(a) - sum(p)) for a, p in zip(audited, plain, strict=True)), n=4)
    parts = [f"{name} {us * (median(audited, i) - median(plain, i)):.1f}" for i, name in enumerate(PARTS)]
    return cost, [
        f"{program.name}: {operations} operations, {rounds} steps; a plain step takes {1e3 * total(plain):.1f} ms",
        f"  microseconds per operation   {cost:6.1f}   quartiles {spread[0]:.1f} to {spread[2]:.1f}   goal <= 40",
        f"  of these, by part            {', '.join(parts)}",
        f"  of these, PyTorch's own      {us * (total(passing) - total(plain)):6.1f}",
    ]


def measure_captured(small: bool) -> tuple[str, dict]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    costs, lines = [], []
    try:
        with running() as daemon:
            plan = _plan(daemon.address)
        for make in (_perceptron, _gpt):
            cost, text = _measure(make(small), plan, 5 if small else 40)
            costs.append(cost)
            lines += text
    finally:
        torch.set_num_threads(threads)
    return "\n".join(lines), {"capture_us_per_op": round(max(costs), 1)}
