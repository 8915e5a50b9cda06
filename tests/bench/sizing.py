"""The report `sizing`: what a stored verdict takes, in the daemon's database and in an export, how many steps a second
a daemon answers, and how many series it gives Prometheus. deploy/sizing.md reckons with its figures."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / path) for path in ("tests/service", "client/python", "deploy/lib")]

STREAMS = 8  # Of hand-made steps, which cost next to nothing to audit.
ANSWER_S_MAX = 120.0


@dataclass
class Size:
    """Of one model's verdicts."""

    name: str
    taps: int
    operations: int
    database: float  # Bytes of the database file a verdict.
    summary: float  # Of them those of what lists give.
    detail: float  # And those of its taps and contributors.
    parquet: float
    audit_seconds: float
    payload: float  # Bytes that a step brought to the daemon.
    series: int  # Of the daemon's metrics, with one job.


def gpt(layers: int, width: int) -> Callable[[], tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]]:
    def made() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
        from gpt import GPT

        model = GPT(vocabulary=64, context=32, width=width, heads=4, layers=layers)

        def loss(model: nn.Module) -> torch.Tensor:
            tokens = torch.randint(64, (4, 33))
            logits = model(tokens[:, :-1])
            return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

        return model, loss

    return made


def perceptron() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    return model, lambda model: model(torch.randn(16, 32)).square().mean()


MODELS = {"perceptron": perceptron, "GPT, 2 layers": gpt(2, 64), "GPT, 12 layers": gpt(12, 32)}


@contextlib.contextmanager
def served() -> Iterator[object]:
    from stream_daemon import DaemonProcess

    daemon = DaemonProcess("--metrics-listen=127.0.0.1:0")
    try:
        yield daemon
    finally:
        daemon.close()


def file_bytes(database: Path) -> int:
    """Of the pages in use, whatever the write-ahead log holds."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size


def metrics(daemon: object) -> str:
    from query_support import metrics_address

    with urllib.request.urlopen(f"http://{metrics_address(daemon)}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def payload_bytes(page: str) -> float:
    return sum(float(value) for value in re.findall(r"^plumbline_ingest_bytes_total\{[^}]*\} (\S+)$", page, re.M))


def measured(name: str, steps: int, folder: Path) -> Size:
    """Trains, and weighs what the daemon has stored of it. Every step is audited."""
    import plumbline
    from plumbline import export
    from plumbline.v1 import query_pb2

    with served() as daemon:
        torch.manual_seed(0)
        model, loss = MODELS[name]()
        optimizer = torch.optim.AdamW(model.parameters())
        database = daemon.directory / "data" / "verdicts.db"
        empty = file_bytes(database)
        audit = plumbline.watch(model, optimizer, daemon.address, job="sizing", every=1)
        for _ in range(steps):
            with audit.step():
                loss(model).backward()
                optimizer.step()
                optimizer.zero_grad()
            assert audit.flush(ANSWER_S_MAX), audit.errors()
        audit.close()
        verdicts = audit.verdicts()
        assert len(verdicts) == steps, audit.errors()
        page = metrics(daemon)
        with contextlib.closing(sqlite3.connect(database)) as connection:
            query = "SELECT count(*), avg(length(summary)), avg(length(detail)) FROM verdicts"
            rows, summary, detail = connection.execute(query).fetchone()
        assert rows == steps
        output = folder / f"{name}.parquet"
        assert export.export(daemon.address, output, query_pb2.Filter()) == steps
        return Size(
            name,
            len(verdicts[-1].message.taps),
            verdicts[-1].message.coverage.operations,
            (file_bytes(database) - empty) / steps,
            summary,
            detail,
            output.stat().st_size / steps,
            sorted(verdict.message.audit_seconds for verdict in verdicts)[steps // 2],
            payload_bytes(page) / steps,
            sum(not line.startswith("#") for line in page.splitlines()),
        )


def small_steps_per_second(seconds: float) -> float:
    """Of hand-made steps of one addition, by several streams that each wait for an answer before the next step."""
    from query_support import send, type_i
    from stream_client import Client

    with served() as daemon:
        counts = [0] * STREAMS
        begin = threading.Barrier(STREAMS + 1)
        ended = threading.Event()

        def stream(number: int) -> None:
            client = Client(daemon.address)
            opened = client.stream(f"run-{number}", "small")
            begin.wait()
            while not ended.is_set():
                send(opened, type_i(counts[number]))
                counts[number] += 1
            opened.close()
            client.close()

        threads = [threading.Thread(target=stream, args=(number,)) for number in range(STREAMS)]
        for thread in threads:
            thread.start()
        begin.wait()
        started = time.monotonic()
        ended.wait(seconds)
        answered = sum(counts)
        took = time.monotonic() - started
        ended.set()
        for thread in threads:
            thread.join(ANSWER_S_MAX)
        return answered / took


def measure(small: bool) -> tuple[str, dict]:
    torch.set_num_threads(1)
    steps = 20 if small else 200
    with tempfile.TemporaryDirectory(prefix="sizing.") as folder:
        sizes = [measured(name, steps, Path(folder)) for name in MODELS]
    rate = small_steps_per_second(1 if small else 20)
    lines = [
        "model               taps  operations  database B  summary B  detail B  parquet B  audit s  payload B",
        *(
            f"{size.name:18} {size.taps:5} {size.operations:11} {size.database:11.0f} {size.summary:10.0f}"
            f" {size.detail:9.0f} {size.parquet:10.0f} {size.audit_seconds:8.3f} {size.payload:10.0f}"
            for size in sizes
        ),
        "",
        f"B are bytes a verdict, over {steps} of them; payload B those that its step brought; audit s is the median,",
        f"on one worker. /metrics has {sizes[-1].series} series with one job.",
        f"{STREAMS} streams of steps of one addition: {rate:.0f} steps a second, with their clients on the same cores.",
    ]
    least, most = sizes[0], sizes[-1]
    figures = {
        "bytes_per_verdict_least": round(least.database),
        "bytes_per_verdict_most": round(most.database),
        "bytes_per_tap": round((most.database - least.database) / (most.taps - least.taps), 1),
        "parquet_bytes_per_verdict": round(max(size.parquet for size in sizes)),
        "small_steps_per_second": round(rate),
        "audits_per_second_gpt": round(1 / sizes[-1].audit_seconds, 1),
        "metrics_series": sizes[-1].series,
    }
    return "\n".join(lines), figures
