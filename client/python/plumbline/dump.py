"""Writes captured steps to a file, without a daemon: varint-delimited AuditRequest messages, StepBegin to StepEnd.

`python -m plumbline.dump program.py:function trace.pb` calls the function, which returns a dict of tap name to tensor,
or None with the taps taken by themselves (loss, gradients), and writes the step.
"""

from __future__ import annotations

import argparse
import pathlib
import runpy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from .encode import encode_step
from .errors import PlumblineError
from .payload import Pool
from .plan import Plan
from .step import StepCapture


def record(
    function: Callable[[], Mapping[str, torch.Tensor] | None],
    models: Iterable[torch.nn.Module] = (),
    optimizers: Iterable[Any] = (),
    plan: Plan | None = None,
    outputs: bool = False,
    step: int = 0,
    reference: Mapping[str, torch.Tensor] | None = None,
) -> list[bytes]:
    """Serialized AuditRequest messages of one call of `function`. Without a plan every result is observed."""
    plan = plan or Plan()
    capture = StepCapture(plan, Pool(), models, optimizers, outputs)
    with capture:
        for name, tensor in (function() or {}).items():
            capture.tap(name, tensor)
        capture.reference(reference or {})
    if capture.failure is not None:
        raise PlumblineError(f"capture failed: {capture.failure} ({capture.failure.reason})")
    return list(encode_step(capture.records, step, outputs, chunk_bytes_max=plan.chunk_bytes_max))


def save(messages: Iterable[bytes], path: str | pathlib.Path) -> None:
    """Writes messages, each after its length as a varint."""
    with open(path, "wb") as file:
        for message in messages:
            size = len(message)
            while size > 127:
                file.write(bytes((size & 127 | 128,)))
                size >>= 7
            file.write(bytes((size,)))
            file.write(message)


def load(path: str | pathlib.Path) -> Iterator[bytes]:
    """Reads what `save` wrote."""
    content = pathlib.Path(path).read_bytes()
    position = 0
    while position < len(content):
        size = shift = 0
        while True:
            byte = content[position]
            position += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield content[position : position + size]
        position += size


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m plumbline.dump", description=__doc__)
    parser.add_argument("function", help="program.py:function")
    parser.add_argument("output", help="file to write")
    parser.add_argument("--outputs", action="store_true", help="observe every operation's results")
    parser.add_argument("--lowered", default="", help="comma-separated operations that need not be observed")
    arguments = parser.parse_args()
    path, _, name = arguments.function.partition(":")
    if not name:
        parser.error("function: expected program.py:function")
    function = runpy.run_path(path)[name]
    plan = Plan(arguments.lowered.split(",") if arguments.lowered else None)
    messages = record(function, plan=plan, outputs=arguments.outputs)
    save(messages, arguments.output)
    print(f"{arguments.output}: {len(messages)} messages, {sum(map(len, messages))} bytes")


if __name__ == "__main__":
    main()
