"""Runs a program and audits what it trains. Nothing here imports PyTorch before the program does."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .arrival import when_imported
from .options import parser, watched
from .script import NotFound, Script, leave

if TYPE_CHECKING:
    from .steps import Steps

log = logging.getLogger("plumbline")

NAMED = ("run", "reference", "golden", "record_golden")


def main(arguments: list[str]) -> int:
    """Exit status of the program."""
    said = parser().parse_args(arguments)
    try:
        script = Script(said.script, said.arguments, said.module)
    except NotFound as missing:
        print(f"{sys.executable}: {missing}", file=sys.stderr)
        return missing.status
    if os.environ.get("PLUMBLINE_DISABLE", "") not in ("", "0"):
        return leave(script.run())
    _log_to_stderr()
    followed: list[Steps] = []
    process = os.getpid()
    when_imported("torch", lambda: followed.extend(_followed(watched(said), said.wait)))
    error = script.run()
    if os.getpid() != process:
        return leave(error)
    _join_threads()
    for steps in followed:
        steps.finish(error)
    try:
        return leave(error)
    finally:
        _summarise(followed)


def _followed(options: dict[str, Any], wait: bool) -> list[Steps]:
    """PyTorch has just been imported. What fails here is told, and none of the program's business."""
    try:
        with _fork_handlers_off():
            importlib.reload(sys.modules["plumbline"])  # With all that it leaves out as long as PyTorch is not there.
        from ..recorded import record_default_backend
        from ..watch import watch
        from .steps import Steps

        record_default_backend()  # The program may compile before its first step.
        opened = 0

        def start(models: list[Any], optimizers: list[Any], step: int) -> Any:
            nonlocal opened
            opened += 1
            names = {name: f"{options[name]}-{opened}" for name in NAMED if name in options and opened > 1}
            return watch(models, optimizers, **{**options, **names, "first_step": step})

        return [Steps(start, wait)]
    except Exception:
        log.exception("plumbline: this program is not audited")
        return []


@contextlib.contextmanager
def _fork_handlers_off() -> Iterator[None]:
    """While gRPC is imported. It would complain about every fork, at which our children end their audits anyway."""
    name = "GRPC_ENABLE_FORK_SUPPORT"
    given = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]
        else:
            os.environ[name] = given


def _summarise(followed: list[Steps]) -> None:
    lines = iter(["nothing was audited: the program did not import PyTorch"])
    if "torch" in sys.modules:
        from .summary import lines_of

        lines = (line for steps in followed for line in lines_of(steps))
    for line in lines:
        print(f"plumbline: {line}", file=sys.__stderr__)


def _join_threads() -> None:
    """Python itself would wait for them next."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


class _Marked(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "\n".join("plumbline: " + line.removeprefix("plumbline: ") for line in text.splitlines())


def _log_to_stderr() -> None:
    """Whatever the program makes of logging, its own output holds nothing of ours."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Marked("%(message)s"))
    log.addHandler(handler)
    log.propagate = False
