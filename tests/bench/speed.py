"""How long an audit takes, how fast bytes come in, how much memory it needs: each beside its rival, in one run.

  verdict_vs_fp64    a full verdict against the exact reference / PyTorch running the same step again in fp64
  paired_vs_fp64     a full verdict of a pair of traces of one program / the same
  two_programs_...   the same, where the reference takes the batch in two halves
  replay_vs_fp64     the replay alone / the same
  ingest_grpc_ratio  our stream's bytes per second / a bare gRPC stream's of the same messages
  ingest_shm_ratio   the same with the payload in shared memory / memcpy of the payload
  memory_ratio       growth of the daemon's peak resident memory / parameters and activations of the step in fp32
  llama_...          the same of one whole step of a Llama-like model of 25 million parameters
  autocast_...       the same of the first one under bf16 autocast (PyTorch's fp64 step without)
  memory_kept_mb     resident memory that the daemon has more than at its start, a minute after the Llama's last step
                     at most, in 10^6 bytes; null: not waited for
  jobs_scaling       small audits a second, two workers on two cores / twice those of one worker on one (scaling.py)
  ..._apart          the same of two daemons: what the machine itself keeps back of its second core
  compare_seconds_.. compare() of two callables of a two-layer network: small starts a daemon for it, running has one
  resnet_...         the same of a ResNet-50-like network, images of 64 pixels; the second program convolves in halves

Both sides may use all cores. Ratios and times are medians of five repetitions; that of an audit is to the step that
PyTorch runs again right after it, since a shared machine changes its pace in seconds. Brackets hold the least and the
most.
"""

import contextlib
import copy
import dataclasses
import functools
import os
import re
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from gpt import GPT
from llama import LLAMA_25M, LLAMA_SMALL, Llama
from private_daemon import Daemon, binary, running
from profiled import Profile
from resnet import RESNET_50, RESNET_SMALL, ResNet, set_parts
from torch.utils._python_dispatch import TorchDispatchMode

import plumbline

LIMITS = {
    "verdict_vs_fp64": ("<=", 2.5),
    "paired_vs_fp64": ("<=", 4.5),
    "two_programs_vs_fp64": ("<=", 4.5),
    "replay_vs_fp64": ("<=", 1.0),
    "ingest_grpc_ratio": (">=", 0.95),
    "ingest_shm_ratio": (">=", 0.5),
    "memory_ratio": ("<=", 3.0),
    "llama_verdict_vs_fp64": ("<=", 2.5),
    "llama_paired_vs_fp64": ("<=", 4.5),
    "llama_two_programs_vs_fp64": ("<=", 4.5),
    "llama_memory_ratio": ("<=", 3.0),
    "memory_kept_mb": ("<=", 100.0),
    "autocast_verdict_vs_fp64": ("<=", 2.5),
    "autocast_two_programs_vs_fp64": ("<=", 4.5),
    "autocast_memory_ratio": ("<=", 3.0),
    "jobs_scaling": (">=", 0.9),
    "compare_seconds_small": ("<=", 0.3),
    "compare_seconds_running": ("<=", 0.03),
    "resnet_verdict_vs_fp64": ("<=", 2.5),
    "resnet_two_programs_vs_fp64": ("<=", 4.5),
    "resnet_memory_ratio": ("<=", 3.0),
}
CONTROLS = ["jobs_scaling_apart"]  # What the machine gives; nothing is asked of it.


class Activations(TorchDispatchMode):
    """Counts the elements of every storage that the forward pass makes: in 16 bits they are as many as in 32."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, tuple[torch.UntypedStorage, int]] = {}  # Kept alive, so that no address comes twice.

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                storage = tensor.untyped_storage()
                self.storages[storage.data_ptr()] = (storage, storage.nbytes() // tensor.element_size())
        return out

    def elements(self) -> int:
        return sum(elements for _, elements in self.storages.values())


def finish(tensor: torch.Tensor) -> None:
    """Waits for what the tensor's device still does."""
    if tensor.is_cuda:
        torch.cuda.synchronize()


Losses = Callable[[torch.nn.Module, Any, int], Iterable[torch.Tensor]]  # Of a model and a batch, in so many parts.


def language_losses(model: torch.nn.Module, tokens: torch.Tensor, parts: int) -> Iterable[torch.Tensor]:
    for part in tokens.chunk(parts):
        yield F.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten()) / parts


def autocast_losses(model: torch.nn.Module, tokens: torch.Tensor, parts: int) -> Iterable[torch.Tensor]:
    with torch.autocast(tokens.device.type, torch.bfloat16, next(model.parameters()).dtype == torch.float32):
        yield from language_losses(model, tokens, parts)


def image_losses(
    model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor], parts: int
) -> Iterable[torch.Tensor]:
    images, labels = batch
    set_parts(model, parts)
    yield F.cross_entropy(model(images.to(next(model.parameters()).dtype)), labels)


def train_step(
    losses: Losses, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any, parts: int
) -> None:
    for loss in losses(model, batch, parts):
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def phase_seconds(port: int) -> dict[str, float]:
    """Seconds that the daemon spent in each phase of its audits so far, from its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    pattern = r'^plumbline_step_audit_seconds_sum\{[^}]*phase="([^"]+)"[^}]*\} (\S+)$'
    return {phase: float(seconds) for phase, seconds in re.findall(pattern, text, re.M)}


@dataclass(frozen=True)
class Training:
    """What is trained: `batches` are the losses' arguments, `size` says how large each is."""

    name: str
    model: torch.nn.Module
    batches: list
    size: str
    losses: Losses = language_losses


@dataclass(frozen=True)
class Audits:
    """Verdicts, and the seconds of PyTorch's fp64 step after each."""

    verdicts: list
    fp64_s: list[float]

    def ratio(self) -> float:
        return statistics.median(self._ratios())

    def line(self, name: str) -> str:
        audit_s = statistics.median(verdict.audit_seconds for verdict in self.verdicts)
        return f"  {name:32}{audit_s * 1e3:11.1f} ms  {_spread(self._ratios(), '.2f')} x fp64"

    def _ratios(self) -> list[float]:
        return [verdict.audit_seconds / fp64_s for verdict, fp64_s in zip(self.verdicts, self.fp64_s, strict=True)]


def _spread(values: list[float], form: str) -> str:
    return f"[{min(values):{form}}, {max(values):{form}}]"


def audited(daemon: Daemon, training: Training, run: str, reference: str | None, parts: int = 1) -> Audits:
    """Trains a copy of the model, each step audited and waited for, then run in fp64 by PyTorch. The first warms up."""
    wide = copy.deepcopy(training.model).double()
    wide_optimizer = torch.optim.AdamW(wide.parameters(), lr=1e-4)
    model = copy.deepcopy(training.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    audit = plumbline.watch(model, optimizer, daemon.address, job="speed", run=run, every=1, reference=reference)
    some = next(model.parameters())
    fp64_s = []
    for batch in training.batches:
        with audit.step():
            train_step(training.losses, model, optimizer, batch, parts)
        if not audit.flush(300):
            raise RuntimeError("no verdict within 300 s")
        finish(some)
        start = time.perf_counter()
        train_step(training.losses, wide, wide_optimizer, batch, 1)
        finish(some)
        fp64_s.append(time.perf_counter() - start)
    steps = len(training.batches)
    if audit.errors() or len(audit.verdicts()) != steps:
        raise RuntimeError(f"{len(audit.verdicts())} verdicts of {steps} steps; errors: {audit.errors()}")
    audit.close()
    return Audits(audit.verdicts()[1:], fp64_s[1:])


def tokens_of(name: str, model: torch.nn.Module, vocabulary: int, size: tuple[int, int], repetitions: int) -> Training:
    draw = torch.Generator().manual_seed(1)
    batches = [torch.randint(0, vocabulary, size, generator=draw) for _ in range(repetitions)]
    return Training(name, model, batches, f"{size[0]} x {size[1] - 1} tokens")


def gpt_training(small: bool) -> Training:
    shape = {"width": 64, "layers": 2, "heads": 2} if small else {"width": 256, "layers": 4, "heads": 4}
    torch.manual_seed(0)
    return tokens_of("GPT", GPT(**shape), 256, (4, 65) if small else (8, 65), 3 if small else 6)


def measure_gpt(small: bool, profiled: bool) -> tuple[dict[str, float], list[str]]:
    return measure_audits(gpt_training(small), profiled)


def measure_autocast(small: bool, profiled: bool) -> tuple[dict[str, float], list[str]]:
    training = dataclasses.replace(gpt_training(small), name="GPT under bf16 autocast", losses=autocast_losses)
    figures, lines = measure_audits(training, profiled)
    names = ("verdict_vs_fp64", "two_programs_vs_fp64", "memory_ratio")
    return {f"autocast_{name}": figures[name] for name in names}, lines


def measure_llama(small: bool, profiled: bool) -> tuple[dict[str, float | None], list[str]]:
    shape = LLAMA_SMALL if small else LLAMA_25M
    torch.manual_seed(0)
    size = (4, shape["time"] + 1)
    training = tokens_of("Llama", Llama(**shape), shape["vocabulary"], size, 3 if small else 6)
    figures, lines = measure_audits(training, profiled, wait=not small)
    names = ("verdict_vs_fp64", "paired_vs_fp64", "two_programs_vs_fp64", "memory_ratio")
    return {f"llama_{name}": figures[name] for name in names} | {"memory_kept_mb": figures["memory_kept_mb"]}, lines


def measure_resnet(small: bool, profiled: bool) -> tuple[dict[str, float], list[str]]:
    shape, pixels = (RESNET_SMALL, 16) if small else (RESNET_50, 64)
    torch.manual_seed(0)
    model = ResNet(**shape)
    draw = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(4, 3, pixels, pixels, generator=draw), torch.randint(0, shape["classes"], (4,), generator=draw))
        for _ in range(3 if small else 6)
    ]
    training = Training("ResNet", model, batches, f"4 images of {pixels} x {pixels} pixels", image_losses)
    figures, lines = measure_audits(training, profiled)
    names = ("verdict_vs_fp64", "two_programs_vs_fp64", "memory_ratio")
    return {f"resnet_{name}": figures[name] for name in names}, lines


def memory_kept(daemon: Daemon, before_bytes: int) -> int:
    """What it holds more than before, a minute later at most."""
    end = time.monotonic() + 60
    while (kept := daemon.resident_bytes() - before_bytes) > 0 and time.monotonic() < end:
        time.sleep(1)
    return kept


def measure_audits(
    training: Training, profiled: bool = False, wait: bool = False
) -> tuple[dict[str, float | None], list[str]]:
    """`profiled`: says where the time goes, which costs time. `wait`: for memory that is given back."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model, batches = training.model, training.batches
    with Activations() as activations:
        list(training.losses(copy.deepcopy(model), batches[0], 1))
    step_bytes = 4 * (activations.elements() + sum(p.numel() for p in model.parameters()))

    port = free_port()
    with running(f"--metrics-listen=127.0.0.1:{port}") as daemon:
        start_bytes, before_bytes = daemon.resident_bytes(), daemon.peak_bytes()
        audited(daemon, dataclasses.replace(training, batches=batches[:1]), "warm", None)
        warm_s = phase_seconds(port)["replay"]
        profiles = [Profile(daemon.pid) if profiled else contextlib.nullcontext() for _ in range(2)]
        with profiles[0]:
            exact = audited(daemon, training, "exact", None)
        replay_s = (phase_seconds(port)["replay"] - warm_s) / len(batches)
        grown_bytes = daemon.peak_bytes() - before_bytes
        paired = audited(daemon, training, "paired", "exact")
        with profiles[1]:
            two_programs = audited(daemon, training, "halves", "exact", parts=2)
        kept_bytes = memory_kept(daemon, start_bytes) if wait else None
    fp64_s = exact.fp64_s + paired.fp64_s + two_programs.fp64_s
    parameters = sum(p.numel() for p in model.parameters())
    lines = [
        f"{training.name} of {parameters / 1e6:.2f} million parameters, {training.size}, "
        f"{torch.get_num_threads()} cores",
        f"  the step in fp64, PyTorch         {statistics.median(fp64_s) * 1e3:9.1f} ms  "
        f"{_spread([1e3 * each for each in fp64_s], '.1f')}",
        f"  its replay                        {replay_s * 1e3:9.1f} ms",
        exact.line("its verdict, exact reference"),
        paired.line("its verdict, paired with itself"),
        two_programs.line("paired with another program"),
        f"  parameters and activations, fp32  {step_bytes / 1e6:9.1f} MB",
        f"  the daemon's peak memory grew by  {grown_bytes / 1e6:9.1f} MB",
    ]
    if kept_bytes is not None:
        lines.append(f"  of which a minute later are left  {kept_bytes / 1e6:9.1f} MB")
    if profiled:
        lines += ["  exact reference", *profiles[0].table(), "  another program", *profiles[1].table()]
    figures = {
        "verdict_vs_fp64": exact.ratio(),
        "paired_vs_fp64": paired.ratio(),
        "two_programs_vs_fp64": two_programs.ratio(),
        "replay_vs_fp64": replay_s / statistics.median(exact.fp64_s),
        "memory_ratio": grown_bytes / step_bytes,
        "memory_kept_mb": None if kept_bytes is None else kept_bytes / 1e6,
    }
    return figures, lines


def measure_ingest(small: bool) -> tuple[dict[str, float], list[str]]:
    mib, rounds = (16, 2) if small else (128, 5)
    bench = str(binary("ingest_bench"))
    modes = ("--server", "--bare", "--shared", "--memcpy")
    rates: dict[str, list[float]] = {flag: [] for flag in modes}

    def run(flag: str, address: str) -> list[float]:
        command = [bench, flag, address, "--mib", str(mib), "--steps", "4"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        return [float(line) for line in done.stdout.split()][1:]  # The first step warms up.

    with running() as daemon, tempfile.TemporaryDirectory(prefix="plumbline.") as scratch:
        for _ in range(rounds):
            for flag in modes:
                rates[flag] += run(flag, f"unix:{scratch}/bare.sock" if flag == "--bare" else daemon.address)
    ours, bare, shared, memcpy = (statistics.median(rates[flag]) for flag in modes)
    lines = [
        f"stream of {mib} MiB steps in chunks of 1 MiB over a unix socket",
        f"  the daemon                        {ours / 1e9:9.2f} GB/s",
        f"  a bare gRPC stream                {bare / 1e9:9.2f} GB/s",
        f"  the daemon, from shared memory    {shared / 1e9:9.2f} GB/s",
        f"  memcpy                            {memcpy / 1e9:9.2f} GB/s",
    ]
    return {"ingest_grpc_ratio": ours / bare, "ingest_shm_ratio": shared / memcpy}, lines


def measure_compare(small: bool) -> tuple[dict[str, float], list[str]]:
    os.environ.setdefault("PLUMBLINED", str(binary("plumblined")))
    torch.manual_seed(0)
    net, data = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)), torch.randn(5, 8)

    def seconds(server: str | None) -> float:
        start = time.perf_counter()
        verdict = plumbline.compare(lambda: {"y": net(data)}, lambda: {"y": net[2](net[0](data).tanh())}, server)
        if verdict.verdict != "TYPE_I":
            raise RuntimeError(f"two programs that are the same: {verdict}")
        return time.perf_counter() - start

    first = seconds(None)  # Measures the processor too, once in a process.
    repetitions = 3 if small else 11
    alone = [seconds(None) for _ in range(repetitions)]
    with running() as daemon:
        seconds(daemon.address)
        with_daemon = [seconds(daemon.address) for _ in range(repetitions)]
    lines = [
        "compare() of two callables of a two-layer network",
        f"  a process's first one             {first:9.3f} s",
        f"  that starts a daemon              {statistics.median(alone):9.3f} s  [{min(alone):.3f}, {max(alone):.3f}]",
        f"  with a running daemon             {statistics.median(with_daemon):9.3f} s"
        f"  [{min(with_daemon):.3f}, {max(with_daemon):.3f}]",
    ]
    figures = {
        "compare_seconds_small": statistics.median(alone),
        "compare_seconds_running": statistics.median(with_daemon),
    }
    return figures, lines


def measure(small: bool, profiled: bool = False) -> tuple[str, dict]:
    from scaling import measure as measure_scaling  # It asks daemons, for which a bundle's client has no stubs.

    figures: dict = {}
    binary("ingest_bench")  # If it is not built, that is told before minutes have gone by.
    with running() as daemon:
        lines = [f"the daemon multiplies by OpenBLAS's kernels for {daemon.products_for()}, PyTorch as it chooses", ""]
    audits = (measure_gpt, measure_llama, measure_resnet, measure_autocast)
    for part in (
        *(functools.partial(each, profiled=profiled) for each in audits),
        measure_ingest,
        measure_scaling,
        measure_compare,
    ):
        found, more = part(small)
        figures |= found
        lines += [*more, ""]
    for name, (relation, limit) in LIMITS.items():
        figure = "-" if figures[name] is None else f"{figures[name]:.3f}"
        lines.append(f"{name:29} {figure:>8}   must end {relation} {limit}")
    return "\n".join(lines), {name: figures[name] and round(figures[name], 3) for name in (*LIMITS, *CONTROLS)}
