"""Records one step: a dispatch mode that sees every operation, and changes no bit of what it sees.

Records are plain tuples, turned into messages on the transport's thread (encode.py):

    ("leaf", value, dtype, count, role, name, payload, (part, window) of what ranks share or None)
    ("data", payload, content)
    ("op", OperatorInfo, arguments, results, phase, source, module, decision payload)
    ("read", window, number, phase, source, module, by what: "" is item(), else tolist or numpy)
    ("draw", name of the leaf, info, arguments, phase, module, source)
    ("reinterpret", window before, window after, count, payload)
    ("tap", name, kind, [(window, weight, payload)], reference payload, reference dtype, scale, guard, part or None)

An "op" may have more items: the name of its compiled region, how a convolution adds up, and the name of the operation
whose definition it is a part of.
`arguments` has one entry for each given argument of the schema: a window, a list of windows (of a list of tensors, or
of what stands for one that cannot be described), an Edge, or a plain value; UNSET where the schema's default applies.
A result is (window, count, base, argument name, payload).
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import compiler, foreign
from .autocasting import AutocastState
from .bytes_copied import as_held
from .convolutions import CONVOLUTIONS, summation
from .draws import RECORDED
from .exchanges import Exchanges
from .halves import Halves
from .hidden import HiddenDerivatives
from .payload import Arena, Pool
from .plan import CaptureFailed, Plan
from .scalings import scales
from .schema import (
    COLLECTIVE,
    EMPTY,
    OPERATION,
    RANDOM,
    SCALAR,
    SKIP,
    TENSOR,
    TENSORS,
    UNSET,
    VIEW,
    ArgumentInfo,
    OperatorInfo,
)
from .shards import part_of
from .sites import FORWARD, Sites
from .standins import as_own, is_wrapper, read_stand_ins
from .storages import (
    ABSENT,
    DATA,
    StorageTable,
    Window,
    Written,
    has_view,
    layout_of,
    modelled,
    stand_ins,
    was_computed,
    wrote,
)
from .storages import RANDOM as RANDOM_LEAF
from .zero_tensors import survivable

log = logging.getLogger("plumbline")

_DESCRIBED = frozenset((OPERATION, RANDOM, SCALAR))  # Kinds of operations whose arguments are described.

# Numbers so common in programs that being equal to one read from a tensor says nothing.
_TRIVIAL = {0, 1, -1, 2, -2, 0.5, -0.5, -1.0, -2.0, 0.1, 0.9, 10, 100}


# What is known before an operation runs: its site (phase, module, source), its arguments, and the kind of one of these
# that cannot be described, if there is one.
Site = tuple[int, str, str]
Pending = tuple[Site, list[Any], str]


class Edge:
    """A Python number that was read from a one-element tensor earlier in the step."""

    __slots__ = ("window",)

    def __init__(self, window: Window) -> None:
        self.window = window


class _Silence(threading.local):
    """By thread: above 0 while what runs is no operation of the step (the compiler, or the kernels that it made)."""

    depth = 0


class Recorder(TorchDispatchMode):
    """The dispatch mode of one step. Operations may come from several threads; records form one sequence."""

    # Higher-order operations come to __torch_dispatch__ too, instead of raising.
    supports_higher_order_operators = True

    def __init__(self, plan: Plan, pool: Pool, outputs: bool = False, ranks: int = 1) -> None:
        super().__init__()
        self.plan = plan
        self.ranks = ranks  # Judged together: their collectives are tied.
        self.outputs, self.perturbing = outputs, False  # perturbing: derivatives that watching changes are followed.
        self.halves = Halves()
        self.records: list[tuple[Any, ...]] = []
        self.arena = Arena(pool)
        self.storages = StorageTable(self.arena, self.records)
        self.sites = Sites()
        self.failure: CaptureFailed | None = None
        self.lock = threading.RLock()
        self.silence = _Silence()
        self.autocast = AutocastState()
        # What to call once, before a tensor of a storage is written: with the operation, and with the factor if it only
        # scales.
        self.before_write: dict[int, Callable[[torch.Tensor, OperatorInfo | None, Any], None]] = {}
        # The same for any other storage, while some wait.
        self.before_others: Callable[[torch.Tensor, OperatorInfo | None, Any], None] | None = None
        # Follows operations whose mathematics the user told (defined.py), and, for it, the record of each value.
        self.defined: Any = None
        self.hidden = HiddenDerivatives(self)
        self.made: dict[int, int] | None = None
        self.site: Site = (FORWARD, "", "")  # Of the operation that is being recorded.
        # Called with what a reduction over ranks is about to read.
        self.on_reduction: Callable[[list[torch.Tensor]], None] | None = None
        # Called with an operation that gave scaled copies, its arguments, their windows, and what it gave.
        self.on_copies: Callable[[OperatorInfo, Any, list[Any], Any], None] | None = None
        self._scalars: dict[tuple[type, Any], Window] = {}
        self.numbers_read: set[Window] = set()  # What Python was told so far.
        self.reader = ""  # By what a tensor is read whole: "tolist", "numpy"; empty: a number is read by itself.
        self.exchanges = Exchanges(self)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # Wrapping each call costs, and imports the compiler: see recorder().

    def fail(self, reason: str, message: str) -> None:
        """Ends the capture; the step is dropped, the training goes on."""
        if self.failure is None:
            self.failure = CaptureFailed(reason, message)
            log.warning("plumbline: step not audited (%s): %s", reason, message)

    def guard(self, error: Exception) -> None:
        """Ends the capture for an error of our own."""
        if isinstance(error, CaptureFailed):
            self.fail(error.reason, str(error))
        else:
            self.fail("capture_error", f"{type(error).__name__}: {error}")

    def close(self) -> None:
        with self.lock:
            self.storages.close()
            self._scalars.clear()
            self.numbers_read.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        func, args = survivable(func, args)
        if self.failure is not None or self.silence.depth or _get_dispatch_mode(_FAKE) is not None:
            return func(*args, **kwargs)
        for kind in types:
            if kind is not torch.Tensor and is_wrapper(kind):  # Let it show the operations inside.
                return NotImplemented
        try:
            info = self.plan.info(func)
        except Exception as error:
            self.guard(error)
            return func(*args, **kwargs)
        if info.composed(args):
            return self._composite(func, args, kwargs)
        if info.kind == VIEW:
            return self._view(func, info, args, kwargs)
        if info.kind not in _DESCRIBED:
            return self._other(func, info, args, kwargs)
        if self.storages.place is not None:
            return foreign.operation(self, func, info, args, kwargs)
        return self.operation(func, info, args, kwargs)

    def _composite(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation that others make up. Seen whole in inference mode only."""
        with self:
            if func.namespace == "fsdp":  # Written in Python, one for all devices.
                return func._op_dk(torch._C._dispatch_key_parse(args[1].device.type.upper()), *args, **kwargs)
            return func.decompose(*args, **kwargs)

    def operation(self, func: Any, info: OperatorInfo, args: Any, kwargs: Any) -> Any:
        """An operation whose arguments are described before it runs, and its results afterwards."""
        call = None
        try:
            with self.lock:
                if self.exchanges.scattered and self.exchanges.delivers(func, args):
                    return func(*args, **kwargs)
                self.site = site = self.sites.current()
                self.storages.unmodelled = ""
                told = as_held(self.storages, func, args)
                pending = (site, self._before(info, told, kwargs), self.storages.unmodelled)
                if self.defined is not None:
                    call = self.defined.begins(info, pending, args, kwargs)
        except Exception as error:
            self.guard(error)
            return func(*args, **kwargs)
        if info.casts_inside:
            with self.autocast.as_called():
                out = func(*args, **kwargs)
        else:
            out = func(*args, **kwargs)
        if self.failure is None:
            try:
                with self.lock:
                    if call is None:
                        self._after(info, pending, told, kwargs, out if told is args else told[0])
                    else:
                        call.ends(out)
            except Exception as error:
                self.guard(error)
        return out

    def _view(self, func: Any, info: OperatorInfo, args: Any, kwargs: Any) -> Any:
        viewed = None
        try:
            if info.base == "detach" and was_computed(args[0]):
                with self.lock:
                    self.storages.read(args[0])  # While it is still known that it was computed.
            if torch.is_grad_enabled():
                viewed = self.sites.current()  # Its derivative may be an operation.
        except Exception as error:
            self.guard(error)
            return func(*args, **kwargs)
        out = func(*args, **kwargs)
        if viewed is not None and viewed[0] == FORWARD and self.failure is None:
            try:
                with self.lock:
                    self.storages.note_part(args[0], out, info.name, *viewed[1:])
            except Exception as error:
                self.guard(error)
        return out

    def _other(self, func: Any, info: OperatorInfo, args: Any, kwargs: Any) -> Any:
        """What makes room, tells nothing of numbers, or moves them between ranks."""
        try:
            if info.kind == COLLECTIVE:
                with self.lock:
                    self.exchanges.begins(info, args, kwargs)
        except Exception as error:
            self.guard(error)
            return func(*args, **kwargs)
        out = func(*args, **kwargs)
        if self.failure is None:
            try:
                with self.lock:
                    self._after_other(info, args, out)
            except Exception as error:
                self.guard(error)
        return out

    def _before(self, info: OperatorInfo, args: Any, kwargs: Any) -> list[Any]:
        """Windows of the arguments as they are before the operation runs."""
        if info.composed(args):
            return []
        if 0 <= info.perturbing < len(args) and not self.perturbing and torch.is_grad_enabled():
            cause = args[info.perturbing]
            if isinstance(cause, torch.Tensor) and cause.requires_grad and not self.hidden.takes(info, args):
                raise CaptureFailed("perturbing_op", f"{info.name}: its derivative computes otherwise when watched")
        values: list[Any] = []
        read = self.storages.read
        for argument, value in zip(info.arguments, info.given(args, kwargs) if kwargs else args, strict=False):
            kind = argument.kind
            if kind == TENSOR and isinstance(value, torch.Tensor):
                if not argument.write:
                    window = read(value)
                elif argument.updated and info.lowered and not self.before_write:
                    window = read(value, True)
                else:
                    window = self._read(value, info, argument, args)
                if window[1]:
                    values.append(window)
                    continue
                value = read_stand_ins(self, value, info, argument)
            elif kind == TENSORS and value is not None and value is not UNSET:
                value = self._windows(value, info, argument, args)
            elif argument.scalar and self._scalars and type(value) in (float, int):
                number = self._scalars.get((type(value), value))
                if number is not None:
                    value = Edge(number)
            values.append(value)
        if len(values) < len(info.arguments):
            values += [UNSET] * (len(info.arguments) - len(values))
        return values

    def _windows(self, tensors: Any, info: OperatorInfo, argument: ArgumentInfo, args: Any) -> list[Window]:
        """Windows of a list of tensors."""
        windows: list[Window] = []
        for item in tensors:
            if item is None:
                windows.append(ABSENT)
                continue
            window = self._read(item, info, argument, args) if argument.write else self.storages.read(item)
            if window[1]:
                windows.append(window)
                continue
            stands = read_stand_ins(self, item, info, argument)
            windows.extend(stands if type(stands) is list else [stands])
        return windows

    def _read(self, tensor: torch.Tensor, info: OperatorInfo, argument: ArgumentInfo, args: Any = ()) -> Window:
        """Window of an argument that the operation is going to write, after those who wait for its content."""
        replaced = argument.out or (info.overwrites and argument is info.arguments[0])
        if (replaced or self.before_write or not info.lowered) and not modelled(tensor):
            return self.storages.read(tensor)
        if self.before_write:
            self.announce_write(tensor, info, args[1] if scales(info, args, in_place=True) else None)
        if replaced:
            return self.storages.read_for_overwrite(tensor)
        # What lies in memory that was never written is no input of an operation whose formula is not known.
        entry = None if info.lowered else self.storages.entry(tensor)
        if entry is not None and entry.unwritten:
            return self.storages.read_for_overwrite(tensor)
        return self.storages.read(tensor, whole=True)

    def announce_write(self, tensor: torch.Tensor, info: OperatorInfo | None = None, factor: Any = None) -> None:
        """Calls those who wait for a tensor's content before it is written. `factor`: see scalings.scales."""
        if self.before_write:
            callback = self.before_write.pop(tensor.untyped_storage()._cdata, self.before_others)
            if callback is not None:
                callback(tensor, info, factor)

    def _after_other(self, info: OperatorInfo, args: Any, out: Any) -> None:
        if info.kind == EMPTY:
            for tensor in [out] if modelled(out) else stand_ins(out):
                entry = self.storages.adopt(tensor)
                entry.unwritten = not entry.value
            return
        elif info.kind == SKIP:
            if info.base == "resize_":
                self.storages.forget(args[0])
        else:
            self.exchanges.ends(info, out)

    def _after(self, info: OperatorInfo, pending: Pending, args: Any, kwargs: Any, out: Any) -> None:
        if info.kind == SCALAR:
            self._number_read(pending, out)
            return
        if info.base in RECORDED:
            return RECORDED[info.base](self, info, pending, out, *args, **kwargs)
        written = self._written(info, args, kwargs, out, pending[1])
        known = self.plan.lowered is not None
        if known and info.constant and not info.lowered and not any(type(value) is Edge for value in pending[1]):
            for tensor, _, (_, code, *_) in written:  # Data, though it is made within the step.
                if tensor is not None and code:
                    self.storages.write_leaf(tensor, DATA, "")
            return
        if info.kind == RANDOM:
            for tensor, _, _ in written:
                for part in [] if tensor is None else [tensor] if modelled(tensor) else stand_ins(tensor):
                    self._random(part, info, pending)
            return
        if written:
            more = ("", summation(info.name, args)) if info.name in CONVOLUTIONS else ()
            self.emit(info, pending, written, *more)
        if self.before_write and self.on_copies is not None and scales(info, args, in_place=False):
            self.on_copies(info, args, pending[1], out)
        if info.perturbing >= 0 and self.hidden.on and torch.is_grad_enabled() and not self.perturbing:
            self.hidden.note(info, args, pending[1][0], out)

    def _number_read(self, pending: Pending, number: Any) -> None:
        """What Python was told, and may compute later arguments from."""
        (phase, module, source), (window, *_), _ = pending
        if type(number) not in (float, int) or type(window) is list or not window[0] or window in self.numbers_read:
            return
        self.numbers_read.add(window)
        self.records.append(("read", window, number, phase, source, module, self.reader))
        # One of many elements may equal a number of the text by chance.
        if not self.reader and number not in _TRIVIAL and math.isfinite(number):
            self._scalars[(type(number), number)] = window

    def emit(
        self, info: OperatorInfo, pending: Pending, written: list[Written], *more: Any, observe: bool = True
    ) -> None:
        """`observe`: results may be captured. Those of what the program did not call hold something else by now."""
        (phase, module, source), values, unmodelled = pending
        for tensor, _, layout in written:
            if unmodelled or not (layout[1] or tensor is None):
                info, written = as_own(self, info, unmodelled, written)
                break
        always, halves = self.outputs or info.observed, self.halves
        results: list[tuple[Window, int, int, str, int]] = []
        decision = 0
        last = len(written) - 1 if info.last_result_decision else -1
        wrote = False
        for position, (tensor, name, layout) in enumerate(written):
            if tensor is None:
                results.append((ABSENT, 0, 0, name, 0))
                continue
            wrote = True
            window, count, base = self.storages.write(tensor, bool(name), layout)
            payload = 0
            observed = observe and (always or position == last or (halves.room > 0 and halves.take(window[1], tensor)))
            if (observed or info.positive_side) and tensor.numel():
                if observed:
                    payload = self.storages.payload(self.arena.copy_tensor(tensor))
                if info.positive_side and not decision:
                    decision = self.storages.payload(self.arena.copy_positive_side(tensor))
            results.append((window, count, base, name, payload))
        if wrote:
            self.append_op(("op", info, values, results, phase, source, module, decision, *more))

    def append_op(self, record: tuple[Any, ...]) -> None:
        if self.made is not None:
            for result in record[3]:
                self.made[result[0][0]] = len(self.records)
        self.records.append(record)

    def observe_input(self, tensor: torch.Tensor, window: Window, site: Site) -> Window:
        """A window on a tensor's present content, `window` or another, whose value is a leaf's or observed."""
        if self.made is None:
            records = enumerate(self.records)
            self.made = {result[0][0]: i for i, record in records if record[0] == "op" for result in record[3]}
        index = self.made.get(window[0])
        if index is None or not tensor.numel():
            return window
        results = self.records[index][3]
        position = next(i for i, result in enumerate(results) if result[0][0] == window[0])
        made, count, base, name, payload = results[position]
        if not base:
            if not payload:
                with torch._C._DisableTorchDispatch():
                    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                    whole.set_(tensor.untyped_storage(), made[4], made[2], made[3])
                payload = self.storages.payload(self.arena.copy_tensor(whole))
                results[position] = (made, count, base, name, payload)
            return window
        info = self.plan.info(torch.ops.aten.clone.default)  # Written in parts: a copy is observed.
        strides = tuple(math.prod(tensor.shape[axis + 1 :]) for axis in range(tensor.dim()))
        copied = (self.storages.fresh_value(), window[1], tuple(tensor.shape), strides, 0)
        payload = self.storages.payload(self.arena.copy_tensor(tensor))
        phase, module, source = site
        values = [window, *[UNSET] * (len(info.arguments) - 1)]
        self.append_op(("op", info, values, [(copied, tensor.numel(), 0, "", payload)], phase, source, module, 0))
        return copied

    def _written(self, info: OperatorInfo, args: Any, kwargs: Any, out: Any, values: list[Any]) -> list[Written]:
        """The tensors that the operation wrote: returned fresh ones first, then written arguments, of which `values`
        tells what they were."""
        written: list[Written] = []
        if info.fresh:
            for index in info.fresh:
                item = out[index] if info.returns_many else out
                for tensor in item if isinstance(item, (tuple, list)) else (item,):
                    layout = ABSENT if tensor is None else layout_of(tensor)
                    # Some operations return a view without saying so (_unsafe_view): nothing was written.
                    if tensor is not None and (layout[1] or has_view(tensor)) and self.storages.entry(tensor):
                        tensor = None
                    written.append((tensor, "", layout))
            if not info.writes and all(tensor is None for tensor, _, _ in written):
                return []
        for index in info.writes:
            argument = info.arguments[index]
            name = argument.name
            value = args[index] if index < len(args) else kwargs.get(name)
            if argument.updated and type(values[index]) is tuple and values[index][1]:
                written.append((value, name, values[index]))  # It lies as it did.
                continue
            for tensor in value if isinstance(value, (tuple, list)) else (value,):
                if tensor is not None:
                    written.append((tensor, name, layout_of(tensor)))
        return written

    def _random(self, tensor: torch.Tensor, info: OperatorInfo, pending: Pending) -> None:
        """A random draw is a leaf; into a part of a storage, or where it does not lie row by row, a leaf that is copied
        there: the other program's draw may lie otherwise."""
        site, values, _ = pending
        name = self.sites.draw(site[1])
        self.records.append(("draw", name, info, values, *site))
        whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        if whole and tensor.is_contiguous():
            self.storages.write_leaf(tensor, RANDOM_LEAF, name)
            return
        before = self.storages.read_for_overwrite(tensor) if whole else values[0]
        self.copy_leaf(tensor, before, RANDOM_LEAF, name, site)

    def copy_leaf(
        self, tensor: torch.Tensor, before: Window, role: int, name: str, site: tuple[int, str, str]
    ) -> Window:
        """Writes a leaf of its own, with the tensor's content, into the tensor. Returns a window on the leaf."""
        part = part_of(tensor)
        code, count = modelled(tensor), tensor.numel()
        payload = self.storages.payload(self.arena.copy_tensor(tensor)) if count else 0
        value = self.storages.fresh_value()
        strides = tuple(math.prod(tensor.shape[axis + 1 :]) for axis in range(tensor.dim()))
        source = (value, code, tuple(tensor.shape), strides, 0)
        shared = None if part is None else (part, source)
        self.records.append(("leaf", value, code, count, role, name, payload, shared))
        pending = (site, [before, source, UNSET], "")
        self.emit(self.plan.info(torch.ops.aten.copy_.default), pending, [wrote(tensor, "self")], observe=False)
        return source

    # What taps need.

    def window(self, tensor: torch.Tensor) -> Window:
        """Window of a tensor on its present value; an error where its type is not modelled."""
        window = self.storages.read(tensor, whole=True)
        if not window[0]:
            raise CaptureFailed("unmodelled_tap", f"a tap of dtype {tensor.dtype}, layout {tensor.layout}")
        return window

    def observe(self, tensor: torch.Tensor) -> tuple[Window, int]:
        """Window of a tensor and the payload of its present content; payload 0 where it is a window on a leaf."""
        window = self.window(tensor)
        entry = self.storages.entry(tensor)
        if entry is None or entry.leaf or not tensor.numel():
            return window, 0
        content = entry.content
        if content is not None and tensor.is_contiguous() and len(content) == tensor.numel() * tensor.element_size():
            return window, self.storages.payload(content)
        return window, self.storages.payload(self.arena.copy_tensor(tensor))


class _CompilerSafeRecorder(Recorder):
    """For programs that use torch.compile: the compiler must not trace the recorder itself."""

    __torch_dispatch__ = torch._disable_dynamo(Recorder.__torch_dispatch__, recursive=True)


def recorder(plan: Plan, pool: Pool, outputs: bool = False, ranks: int = 1) -> Recorder:
    """A recorder for one step of this program."""
    return (_CompilerSafeRecorder if compiler.in_use() else Recorder)(plan, pool, outputs, ranks)


_get_dispatch_mode = torch._C._get_dispatch_mode

# Shapes are being worked out on tensors without content, as DTensor does before it computes.
_FAKE = torch._C._TorchDispatchModeKey.FAKE
