"""Re-executes a captured trace in PyTorch, from its leaves and windows alone, and compares all it can bit by bit.

What no leaf and no operation of the trace gave is poisoned, so that a value that the capture missed shows.
"""

from collections.abc import Iterable
from typing import Any

import torch

from plumbline.schema import DTYPES
from plumbline.v1 import audit_pb2, trace_pb2

TORCH_DTYPES = {code: dtype for dtype, code in DTYPES.items()}

# Results with bytes that nobody writes: an operation's memory for its own backward.
SCRATCH = {("aten::mkldnn_rnn_layer.default", 3)}

# How native_dropout is told, given its mask. Its own kernel rounds the scale to the elements' format, its derivative's
# does not.
DROPOUT = ("aten::native_dropout_backward.default", trace_pb2.PHASE_FORWARD)


def dropout(x: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.ops.aten.mul_.Scalar(x * mask, scale)


class Mismatch(AssertionError):
    """The trace does not say what happened."""


class Interpreter:
    def __init__(self, messages: Iterable[bytes]) -> None:
        self.values: dict[int, torch.Tensor] = {}  # Flat storage of each value.
        self.ops: list[str] = []
        self.taps: dict[str, torch.Tensor] = {}
        self.leaves: list[Any] = []
        self._payloads: dict[int, bytearray] = {}
        frames = [audit_pb2.AuditRequest.FromString(message) for message in messages]
        for frame in frames:
            if frame.WhichOneof("frame") == "data":
                data = frame.data
                content = self._payloads.setdefault(data.payload, bytearray())
                if data.offset != len(content):
                    raise Mismatch(f"payload {data.payload}: offset {data.offset}, expected {len(content)}")
                content += data.data
        with torch.no_grad():
            for frame in frames:
                kind = frame.WhichOneof("frame")
                if kind == "leaf":
                    self._leaf(frame.leaf)
                elif kind == "op":
                    self._op(frame.op)
                elif kind == "tap":
                    self._tap(frame.tap)

    def payload(self, number: int, dtype: int, sizes: Iterable[int]) -> torch.Tensor:
        sizes = list(sizes)
        content = self._payloads.get(number, bytearray())
        tensor = torch.frombuffer(content, dtype=TORCH_DTYPES[dtype]) if content else torch.empty(0)
        return tensor.view(sizes) if content else torch.empty(sizes, dtype=TORCH_DTYPES[dtype])

    def _leaf(self, leaf: Any) -> None:
        self.leaves.append(leaf)
        self._define(leaf.value, self.payload(leaf.payload, leaf.dtype, [leaf.count]).clone())

    def _define(self, value: int, flat: torch.Tensor) -> None:
        if value in self.values or value == 0:
            raise Mismatch(f"value {value} is not fresh")
        self.values[value] = flat

    def _window(self, tensor: Any, flat: torch.Tensor | None = None) -> torch.Tensor | None:
        if flat is None:
            if tensor.value == 0:
                return None
            flat = self.values[tensor.value]
        if DTYPES[flat.dtype] != tensor.dtype:
            raise Mismatch(f"value {tensor.value} is {flat.dtype}, read as {TORCH_DTYPES[tensor.dtype]}")
        return flat.as_strided(list(tensor.sizes), list(tensor.strides), tensor.offset)

    def _op(self, op: Any) -> None:
        self.ops.append(op.name)
        namespace, _, rest = op.name.partition("::")
        if op.name == "aten::view.dtype":
            source = self._window(op.arguments[0].tensor)
            assert source is not None
            self._define(op.results[0].tensor.value, source.contiguous().view(TORCH_DTYPES[op.arguments[1].dtype]))
            return
        if op.name == "aten::_local_scalar_dense.default":
            source = self._window(op.arguments[0].tensor)
            assert source is not None
            value = op.arguments[1]
            number = value.real if value.WhichOneof("value") == "real" else value.integer
            if source.item() != number and number == number:
                raise Mismatch(f"{op.source}: {number} was read, where the tensor holds {source.item()}")
            return
        if op.name == "plumbline::slice.default":  # Where a part was taken; it computes nothing.
            if self._window(op.arguments[0].tensor) is None:
                raise Mismatch(f"{op.source}: a part of something that is not known")
            return
        if op.name == "plumbline::draw.default":  # What a leaf was drawn from; it computes nothing.
            return
        base, _, overload = rest.partition(".")
        func = getattr(getattr(getattr(torch.ops, namespace), base), overload)
        written: dict[str, list[torch.Tensor]] = {}
        fresh: dict[int, torch.Tensor] = {}  # Values that this operation makes by writing.
        for result in op.results:
            if result.argument and result.tensor.value:
                before = fresh.get(result.base)
                if before is None:
                    if result.base:
                        before = self.values[result.base].clone()
                    else:
                        before = poison(result.count, TORCH_DTYPES[result.tensor.dtype])
                fresh[result.tensor.value] = before
                window = self._window(result.tensor, before)
                assert window is not None
                written.setdefault(result.argument, []).append(window)
        positional, named = [], {}
        for described, argument in zip(func._schema.arguments, op.arguments, strict=True):
            if described.name != argument.name:
                raise Mismatch(f"{op.name}: argument {argument.name}, expected {described.name}")
            value = self._argument(argument)
            if argument.name in written:
                value = written[argument.name]
                value = value if "List" in str(described.type) else value[0]
            if described.kwarg_only:
                named[described.name] = value
            else:
                positional.append(value)
        if (op.name, op.phase) == DROPOUT:
            func = dropout
        with torch.enable_grad():  # Some kernels keep what backward needs only where gradients are recorded.
            out = func(*positional, **named)
        for value, flat in fresh.items():
            self._define(value, flat)
        returned = [result for result in op.results if not result.argument]
        outs = [item for item in flatten(out) if item is None or isinstance(item, torch.Tensor)]
        for result, item in zip(returned, outs, strict=False):
            if not result.tensor.value:
                continue
            if result.base:
                flat = self.values[result.base].clone()
            else:
                flat = poison(result.count, TORCH_DTYPES[result.tensor.dtype])
            window = self._window(result.tensor, flat)
            assert window is not None
            window.copy_(item)
            self._define(result.tensor.value, flat)
        for position, result in enumerate(op.results):
            if result.observed and (op.name, position) not in SCRATCH:
                content = self.payload(result.observed, result.tensor.dtype, result.tensor.sizes)
                check(f"{op.name} result {result.tensor.value}", self._window(result.tensor), content)
        if op.decision:
            first = self._window(op.results[0].tensor)
            assert first is not None
            content = self.payload(op.decision, DTYPES[torch.uint8], op.results[0].tensor.sizes)
            check(f"{op.name} decision", (first > 0).to(torch.uint8), content)

    def _argument(self, argument: Any) -> Any:
        kind = argument.WhichOneof("value")
        value = getattr(argument, kind)
        if kind == "tensor":
            return self._window(value)
        if kind == "scalar":
            source = self._window(value)
            assert source is not None
            return source.item()
        if kind == "tensors":
            return [self._window(tensor) for tensor in value.tensors]
        if kind in ("integers", "reals", "booleans"):
            return list(value.values)
        if kind == "dtype":
            return TORCH_DTYPES[value]
        if kind == "none":
            return None
        if kind == "text" and value.startswith("torch."):
            return getattr(torch, value.removeprefix("torch."))
        return value

    def _tap(self, tap: Any) -> None:
        total = None
        for index, term in enumerate(tap.terms):
            window = self._window(term.tensor)
            assert window is not None
            if term.observed:
                content = self.payload(term.observed, term.tensor.dtype, term.tensor.sizes)
                check(f"tap {tap.name} term {index}", window, content)
            part = window.double() * term.weight
            total = part if total is None else total + part
        assert total is not None
        self.taps[tap.name] = total


def flatten(out: Any) -> Iterable[Any]:
    if isinstance(out, (tuple, list)):
        for item in out:
            yield from flatten(item)
    else:
        yield out


def poison(count: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.full((count,), float("nan"), dtype=dtype)
    return torch.full((count,), 1 if dtype == torch.bool else 85, dtype=dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bits, so that NaN equals itself and -0 is not 0."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype.is_floating_point:
        return tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])
    return tensor


def check(what: str, found: torch.Tensor | None, expected: torch.Tensor) -> None:
    if found is None or not torch.equal(bits(found), bits(expected)):
        raise Mismatch(f"{what}: {found} is not bitwise {expected}")
