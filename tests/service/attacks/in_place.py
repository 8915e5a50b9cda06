"""Steps that write one tensor in place, over and over."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from stream_client import data, frame, leaf

from plumbline.v1 import audit_pb2, trace_pb2

Frames = list[audit_pb2.AuditRequest]


def _window(value: int, sizes: list[int], strides: list[int], offset: int) -> trace_pb2.Tensor:
    return trace_pb2.Tensor(value=value, dtype=trace_pb2.DTYPE_FLOAT32, sizes=sizes, strides=strides, offset=offset)


def _write(name: str, read: list[trace_pb2.Tensor | float], written: trace_pb2.Tensor, count: int) -> trace_pb2.Op:
    """An operation that writes its first argument in place: `written` is its window on the value that it makes."""
    op = trace_pb2.Op(name=name, phase=trace_pb2.PHASE_FORWARD, source="train.py:9")
    for argument, given in zip(("self", "other"), read, strict=False):
        if isinstance(given, float):
            op.arguments.add(name=argument, real=given)
        else:
            op.arguments.add(name=argument, tensor=given)
    op.results.add(tensor=written, count=count, base=read[0].value, argument="self")
    return op


def _step(step: int, content: list[float], ops: Iterator[trace_pb2.Op], expected: list[float]) -> Frames:
    count = len(content)
    frames = [frame(step_begin=audit_pb2.StepBegin(step=step)), leaf(1, count, 1)]
    last = 1
    for op in ops:
        frames.append(frame(op=op))
        last = op.results[0].tensor.value
    tap = trace_pb2.Tap(name="x", kind=trace_pb2.Tap.VALUE)
    tap.terms.add(tensor=_window(last, [count], [1], 0), weight=1.0, observed=2)
    frames.append(frame(tap=tap))
    frames += data(1, struct.pack(f"<{count}f", *content)) + data(2, struct.pack(f"<{count}f", *expected))
    return [*frames, frame(step_end=audit_pb2.StepEnd(frames=len(frames) + 1))]


def independent(step: int, writes: int) -> Frames:
    """x[i] *= 2 for every i: nothing is read until the end."""

    def ops() -> Iterator[trace_pb2.Op]:
        for i in range(writes):
            yield _write(
                "aten::mul_.Tensor",
                [_window(i + 1, [1], [1], i), 2.0],
                _window(i + 2, [1], [1], i),
                writes,
            )

    content = [float(i % 7) for i in range(writes)]
    return _step(step, content, ops(), [2 * each for each in content])


def from_the_first(step: int, writes: int) -> Frames:
    """x[i] += x[0] for every i > 0: each read looks behind all writes so far."""

    def ops() -> Iterator[trace_pb2.Op]:
        for i in range(1, writes):
            read = [_window(i, [1], [1], i), _window(i, [1], [1], 0)]
            yield _write("aten::add_.Tensor", read, _window(i + 1, [1], [1], i), writes)

    content = [1.0] + [float(i % 7) for i in range(1, writes)]
    return _step(step, content, ops(), [1.0] + [each + 1 for each in content[1:]])


def from_the_two_before(step: int, writes: int) -> Frames:
    """x[i:i+2] *= x[i-1:i+1]: what each write reads lies half in the write before, half behind it."""
    values = [1.0 if i % 3 else -1.0 for i in range(writes)]
    content = list(values)

    def ops() -> Iterator[trace_pb2.Op]:
        for i in range(1, writes - 1):
            read = [_window(i, [2], [1], i), _window(i, [2], [1], i - 1)]
            yield _write("aten::mul_.Tensor", read, _window(i + 1, [2], [1], i), writes)

    for i in range(1, writes - 1):
        values[i], values[i + 1] = values[i] * values[i - 1], values[i + 1] * values[i]
    return _step(step, content, ops(), values)


def from_everything(step: int, writes: int, count: int) -> Frames:
    """x[i] *= max(x): each write reads all of x, with all the writes before."""

    def ops() -> Iterator[trace_pb2.Op]:
        last = 1
        for i in range(writes):
            largest = trace_pb2.Op(name="aten::max.default", phase=trace_pb2.PHASE_FORWARD, source="train.py:8")
            largest.arguments.add(name="self", tensor=_window(last, [count], [1], 0))
            largest.results.add(tensor=_window(2 * i + 2, [], [], 0), count=1)
            yield largest
            at = i % count
            read = [_window(last, [1], [1], at), _window(2 * i + 2, [], [], 0)]
            last = 2 * i + 3
            yield _write("aten::mul_.Tensor", read, _window(last, [1], [1], at), count)

    return _step(step, [1.0] * count, ops(), [1.0] * count)
