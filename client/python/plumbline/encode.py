"""Turns the records of a captured step into serialized AuditRequest messages, in order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from . import cuda
from .capture import Edge
from .cuda import DeviceMemory, Staged
from .schema import DTYPES, TENSOR, TENSORS, UNSET, OperatorInfo
from .shared import REGION, SHARED_BYTES_MIN, SharedMemory
from .storages import Window
from .v1 import audit_pb2, trace_pb2

_INT64 = range(-(1 << 63), 1 << 63)


def encode_step(
    records: Iterable[tuple[Any, ...]],
    step: int,
    outputs: bool = False,
    missed: int = 0,
    missed_reasons: Iterable[str] = (),
    scope: audit_pb2.Scope | None = None,
    chunk_bytes_max: int = 1 << 20,
    shared: SharedMemory | None = None,
    region_chunk_bytes_max: int = 0,
    device: DeviceMemory | None = None,
    trace_id: str = "",
) -> Iterator[bytes]:
    """Messages of one step, StepBegin to StepEnd. Payloads that lie in `shared` or on `device` go as places in it."""
    begin = audit_pb2.AuditRequest()
    begin.step_begin.step = step
    begin.step_begin.outputs = outputs
    begin.step_begin.missed = missed
    begin.step_begin.missed_reasons.extend(missed_reasons)
    begin.step_begin.trace_id = trace_id
    if scope is not None:
        begin.step_begin.scope.CopyFrom(scope)
    yield begin.SerializeToString()
    frames = 2
    for record in records:
        if record[0] == "data":
            _, payload, content = record
            if isinstance(content, Staged) and content.memory is device:
                for frame in _data_in(cuda.REGION, payload, content.start, len(content), region_chunk_bytes_max):
                    yield frame
                    frames += 1
                continue
            if isinstance(content, Staged):
                content = content.on_host()
            start = shared.offset(content) if shared is not None and len(content) >= SHARED_BYTES_MIN else None
            data = (
                _data(payload, content, chunk_bytes_max)
                if start is None
                else _data_in(REGION, payload, start, len(content), region_chunk_bytes_max)
            )
            for frame in data:
                yield frame
                frames += 1
        else:
            yield _ENCODERS[record[0]](record).SerializeToString()
            frames += 1
    end = audit_pb2.AuditRequest()
    end.step_end.frames = frames
    yield end.SerializeToString()


def batched(frames: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    """The frames of a step in messages of at most `bytes_max` bytes: gRPC takes longer over a message than encoding one
    does. What is half as large, or more, goes alone; 0: everything does.

    Tags: AuditRequest.batch = 11; Batch.frames = 1.
    """
    parts: list[bytes] = []
    size = _BATCH_HEAD_BYTES
    for frame in frames:
        alone = 2 * len(frame) >= bytes_max
        if parts and (alone or size + _FRAME_HEAD_BYTES + len(frame) > bytes_max):
            yield _batch(parts)
            parts, size = [], _BATCH_HEAD_BYTES
        if alone:
            yield frame
            continue
        parts += (b"\x0a" + _varint(len(frame)), frame)
        size += _FRAME_HEAD_BYTES + len(frame)
    if parts:
        yield _batch(parts)


_BATCH_HEAD_BYTES = _FRAME_HEAD_BYTES = 6  # At most: a tag and a length.


def _batch(parts: list[bytes]) -> bytes:
    content = b"".join(parts)
    return b"\x5a" + _varint(len(content)) + content


def open_frame(handle: str) -> bytes:
    return audit_pb2.AuditRequest(open=audit_pb2.Open(handle=handle)).SerializeToString()


def region_frame(shared: SharedMemory) -> bytes:
    region = audit_pb2.Region(
        region=REGION,
        process=os.getpid(),
        fd=shared.descriptor,
        inode=shared.inode,
        size=shared.bytes_max,
    )
    return audit_pb2.AuditRequest(region=region).SerializeToString()


def device_frame(memory: DeviceMemory) -> bytes:
    region = audit_pb2.Region(region=cuda.REGION, process=os.getpid(), size=memory.size)
    region.cuda.device, region.cuda.handle = memory.uuid, memory.handle
    return audit_pb2.AuditRequest(region=region).SerializeToString()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _data(payload: int, content: memoryview, chunk_bytes_max: int) -> Iterator[bytes]:
    """TensorData messages, written by hand: the content is copied once and not three times.

    Tags: AuditRequest.data = 4; TensorData.payload = 1, offset = 2, total = 3, data = 4.
    """
    total = len(content)
    for offset in range(0, total, chunk_bytes_max):
        chunk = content[offset : offset + chunk_bytes_max]
        head = b"\x08" + _varint(payload)
        if offset:
            head += b"\x10" + _varint(offset)
        head += b"\x18" + _varint(total) + b"\x22" + _varint(len(chunk))
        yield b"".join((b"\x22", _varint(len(head) + len(chunk)), head, chunk))


def _data_in(region: int, payload: int, start: int, total: int, chunk_bytes_max: int) -> Iterator[bytes]:
    for offset in range(0, total, chunk_bytes_max):
        data = trace_pb2.TensorData(
            payload=payload,
            offset=offset,
            total=total,
            region=region,
            region_offset=start + offset,
            length=min(chunk_bytes_max, total - offset),
        )
        yield audit_pb2.AuditRequest(data=data).SerializeToString()


def _fill(message: Any, window: Window) -> None:
    value, dtype, sizes, strides, offset = window
    message.SetInParent()
    message.value = value
    message.dtype = dtype
    message.sizes.extend(sizes)
    message.strides.extend(strides)
    message.offset = offset


def _leaf(record: tuple[Any, ...]) -> Any:
    _, value, dtype, count, role, name, payload, part = record
    leaf = trace_pb2.Leaf(value=value, dtype=dtype, count=count, role=role, name=name, payload=payload)
    if part is not None:
        (whole, start), (_, code, sizes, strides, offset) = part
        _fill(leaf.part.tensor, (value, code, sizes, strides, offset))
        leaf.part.whole.extend(whole)
        leaf.part.start.extend(start)
    return audit_pb2.AuditRequest(leaf=leaf)


def _op(record: tuple[Any, ...]) -> Any:
    _, info, values, results, phase, source, module, decision, *more = record
    request = audit_pb2.AuditRequest()
    op = request.op
    op.name = info.name
    _arguments(op, info, values)
    for window, count, base, name, observed in results:
        result = op.results.add()
        _fill(result.tensor, window)
        result.count, result.base, result.argument, result.observed = count, base, name, observed
    op.phase, op.source, op.module, op.decision = phase, source, module, decision
    if more:
        op.region = more[0]
        op.summation = more[1] if len(more) > 1 else trace_pb2.Op.SUMMATION_UNSPECIFIED
        op.defined = more[2] if len(more) > 2 else ""
    return request


def _reinterpret(record: tuple[Any, ...]) -> Any:
    _, before, after, count, payload = record
    request = audit_pb2.AuditRequest()
    op = request.op
    op.name = "aten::view.dtype"
    argument = op.arguments.add(name="self")
    _fill(argument.tensor, before)
    op.arguments.add(name="dtype").dtype = after[1]
    result = op.results.add()
    _fill(result.tensor, after)
    result.count, result.observed = count, payload
    return request


def _read(record: tuple[Any, ...]) -> Any:
    _, window, number, phase, source, module, reader = record
    request = audit_pb2.AuditRequest()
    op = request.op
    op.name = "aten::_local_scalar_dense.default"
    _fill(op.arguments.add(name="self").tensor, window)
    _plain(op.arguments.add(name="value"), "number", number)
    if reader:
        op.arguments.add(name="reader").text = reader
    op.phase, op.source, op.module = phase, source, module
    return request


def _part(record: tuple[Any, ...]) -> Any:
    _, window, operation, module, source = record
    request = audit_pb2.AuditRequest()
    op = request.op
    op.name = "plumbline::slice.default"
    _fill(op.arguments.add(name="self").tensor, window)
    op.arguments.add(name="operation").text = operation
    op.phase, op.source, op.module = trace_pb2.PHASE_FORWARD, source, module
    return request


def _draw(record: tuple[Any, ...]) -> Any:
    """What a random leaf was drawn from: the operation and its parameters, but for what it overwrote."""
    _, leaf, info, values, phase, module, source = record
    request = audit_pb2.AuditRequest()
    op = request.op
    op.name = "plumbline::draw.default"
    _arguments(op, info, values)
    drawn = [argument.name for argument, described in zip(op.arguments, info.arguments, strict=True) if described.write]
    for index in reversed(range(len(op.arguments))):
        if op.arguments[index].name in drawn or (index == 0 and info.base.endswith(("_like", "_dropout"))):
            del op.arguments[index]
    op.arguments.add(name="operation").text = info.base
    op.arguments.add(name="leaf").text = leaf
    op.phase, op.source, op.module = phase, source, module
    return request


def _tap(record: tuple[Any, ...]) -> Any:
    _, name, kind, terms, reference, reference_dtype, scale, (minimum, maximum), part = record
    request = audit_pb2.AuditRequest()
    tap = request.tap
    tap.name, tap.kind, tap.scale = name, kind, scale
    tap.reference, tap.reference_dtype = reference, reference_dtype
    if part is not None:
        tap.part.whole.extend(part.whole)
        tap.part.start.extend(part.start)
    if minimum is not None:
        tap.minimum = minimum
    if maximum is not None:
        tap.maximum = maximum
    for window, weight, observed in terms:
        term = tap.terms.add(weight=weight, observed=observed)
        _fill(term.tensor, window)
    return request


_ENCODERS = {
    "leaf": _leaf,
    "op": _op,
    "reinterpret": _reinterpret,
    "read": _read,
    "part": _part,
    "draw": _draw,
    "tap": _tap,
}


def _arguments(op: Any, info: OperatorInfo, values: list[Any]) -> None:
    for described, value in zip(info.arguments, values, strict=True):
        if value is UNSET:
            value = described.default
        argument = op.arguments.add(name=described.name)
        if described.kind == TENSOR and type(value) is tuple:
            _fill(argument.tensor, value)
        elif described.kind in (TENSOR, TENSORS) and value is not None and type(value) is list:
            argument.tensors.SetInParent()
            for window in value:
                _fill(argument.tensors.tensors.add(), window)
        elif type(value) is Edge:
            _fill(argument.scalar, value.window)
        elif "Generator" in described.type:
            argument.none = True
        else:
            _plain(argument, described.type, value)


def _plain(argument: Any, kind: str, value: Any) -> None:
    """A value that is no tensor, in the type that it had in Python; what cannot be described goes as text."""
    if value is None:
        argument.none = True
    elif isinstance(value, bool):
        argument.boolean = value
    elif isinstance(value, int):
        if kind in ("float", "Optional[float]"):
            argument.real = value
        elif value in _INT64:
            argument.integer = value
        else:
            argument.text = str(value)
    elif isinstance(value, float):
        argument.real = value
    elif isinstance(value, complex):
        argument.reals.values.extend((value.real, value.imag))
    elif isinstance(value, torch.dtype):
        argument.dtype = DTYPES.get(value, 0)
    elif isinstance(value, str):
        argument.text = value
    elif isinstance(value, (list, tuple)):
        _plain_list(argument, kind, value)
    else:
        argument.text = str(value)


def _plain_list(argument: Any, kind: str, value: Any) -> None:
    if all(isinstance(item, bool) for item in value) and (value or "bool" in kind):
        argument.booleans.values.extend(value)
        argument.booleans.SetInParent()
    elif any(isinstance(item, float) for item in value) or (not value and "float" in kind):
        argument.reals.values.extend(value)
        argument.reals.SetInParent()
    elif all(isinstance(item, int) and item in _INT64 for item in value):
        argument.integers.values.extend(value)
        argument.integers.SetInParent()
    else:
        argument.text = str(value)
