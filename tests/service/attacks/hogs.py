"""Steps of a few kilobytes that take very long to compute."""

from __future__ import annotations

from stream_client import data, floats, frame, leaf

from plumbline.v1 import audit_pb2, trace_pb2

INNER = 1 << 16
SIDE = 512
MULTIPLICATIONS = SIDE * SIDE * INNER  # Of one product; 17 thousand million.


def products(step: int, count: int) -> list[audit_pb2.AuditRequest]:
    """`count` products of matrices that are one number, repeated; the last one's first element is tapped."""

    def matrix(rows: int, columns: int) -> trace_pb2.Tensor:
        return trace_pb2.Tensor(value=1, dtype=trace_pb2.DTYPE_FLOAT32, sizes=[rows, columns], strides=[0, 0])

    frames = [frame(step_begin=audit_pb2.StepBegin(step=step)), leaf(1, 1, 1)]
    for i in range(count):
        product = trace_pb2.Op(name="aten::mm.default", phase=trace_pb2.PHASE_FORWARD, source="train.py:3")
        product.arguments.add(name="self", tensor=matrix(SIDE, INNER))
        product.arguments.add(name="mat2", tensor=matrix(INNER, SIDE))
        result = trace_pb2.Tensor(value=i + 2, dtype=trace_pb2.DTYPE_FLOAT32, sizes=[SIDE, SIDE], strides=[SIDE, 1])
        product.results.add(tensor=result, count=SIDE * SIDE)
        frames.append(frame(op=product))
        tap = trace_pb2.Tap(name=f"y{i}", kind=trace_pb2.Tap.VALUE)
        one = trace_pb2.Tensor(value=i + 2, dtype=trace_pb2.DTYPE_FLOAT32, sizes=[1], strides=[1])
        tap.terms.add(tensor=one, weight=1.0, observed=2)
        frames.append(frame(tap=tap))
    # Operations come before taps.
    frames = [frames[0], frames[1], *frames[2::2], *frames[3::2]]
    frames += data(1, floats(1.0)) + data(2, floats(float(INNER)))
    return [*frames, frame(step_end=audit_pb2.StepEnd(frames=len(frames) + 1))]
