"""Operations that nobody saw run, written down from a run on fake tensors, which have shapes, strides and storages but
no content. Only what goes in and what comes out is real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .capture import Recorder
from .definition import definitions
from .draws import SCALED, dropout_scale
from .plan import Plan
from .schema import DTYPES, EMPTY, OPERATION, RANDOM, SKIP, UNSET, VIEW, OperatorInfo
from .storages import ABSENT, Storage, Window, modelled
from .storages import RANDOM as RANDOM_LEAF

Site = tuple[int, str, str]
Mark = tuple[int, int, list[tuple[Storage, int, int, int, bool]]]
Real = dict[int, torch.Tensor]  # By position among an operation's results.

_DTYPES = {code: dtype for dtype, code in DTYPES.items()}


class NotReplayable(Exception):
    """Something cannot be written down without having been seen."""


class Parts(TorchDispatchMode):
    """Hands on the operations that a formula is made of."""

    def __init__(self, operation: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self._operation = operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._operation(func, args, kwargs or {})


class Shadow:
    """Runs operations on fake tensors and writes them down as operations of a region."""

    def __init__(
        self,
        recorder: Recorder,
        site: Site,
        name: str,
        defined: str = "",
    ) -> None:
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

        self._recorder = recorder
        self._site = site
        self._name = name
        self._defined = defined  # The operation whose definition this is.
        self._fake_type = FakeTensor
        self._fake = FakeTensorMode()
        self._bases: dict[int, torch.Tensor] = {}  # By value: what stands for its storage.
        self._aliases: list[int] = []  # Keys of these in the table of storages.
        self._content: dict[int, torch.Tensor] = {}  # By fake tensor: the real one that holds its content now.
        self._drawn: set[int] = set()  # Fake tensors of random content.
        self._kept: list[Any] = []

    def mark(self, written: list[Any]) -> Mark:
        """The present state, for roll_back; `written`: real tensors that may be handed results."""
        storages = self._recorder.storages
        entries = [storages.adopt(t) for t in written if isinstance(t, torch.Tensor) and modelled(t)]
        kept = [(entry, entry.value, entry.dtype, entry.count, entry.leaf) for entry in entries]
        return len(self._recorder.records), storages.last_value, kept

    def roll_back(self, mark: Mark) -> None:
        records, value, kept = mark
        del self._recorder.records[records:]
        self._recorder.storages.forget_since(value)
        for entry, *state in kept:
            entry.value, entry.dtype, entry.count, entry.leaf = state

    def close(self) -> None:
        for key in self._aliases:
            self._recorder.storages.drop_alias(key)

    def stand_in(self, window: Window, device: torch.device) -> torch.Tensor:
        """A fake tensor for a window on a known value."""
        value, code, sizes, strides, offset = window
        if not value:
            raise NotReplayable("a tensor of a type that is not modelled")
        storages = self._recorder.storages
        with self._fake:
            if value not in self._bases:
                reach = offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
                entry = storages.entry_of_value(value, reach, code)
                base = self._bases[value] = torch.empty(entry.count, dtype=_DTYPES[code], device=device)
                self._aliases.append(storages.alias(base, entry))
            return self._bases[value].as_strided(sizes, strides, offset)

    def operation(self, func: Any, args: Any, kwargs: Any, site: Site, real: Real) -> Any:
        """Runs one operation on fake tensors and writes it down; `real` holds its results that the region gave."""
        recorder = self._recorder
        func, args, kwargs = _rewritten(func, args, kwargs)
        info = recorder.plan.info(func)
        if info.base == "native_dropout" and len(args) == 3 and args[2]:
            return self._dropout(args[0], args[1], site, real)
        drawn = [id(tensor) in self._drawn for tensor in _fakes((args, kwargs))]
        random = draws(info)
        if info.kind == OPERATION and not is_modelled(info, recorder.plan) and not random and not any(drawn):
            return self._decomposed(info, args, kwargs, site, real)
        values: list[Any] = []
        if info.kind == OPERATION and not random and not any(drawn):
            recorder.storages.unmodelled = ""
            values = recorder._before(info, args, kwargs)
            if recorder.storages.unmodelled:
                raise NotReplayable(f"{info.name} of a type that is not modelled")
        with self._fake:
            out = _as_given(func(*args, **kwargs), real)
        if random or any(drawn):
            if info.writes or not (random or all(drawn)):
                raise NotReplayable(f"random numbers that the region keeps, read by {info.name}")
            for index, fake in enumerate(_fakes(out)):
                self._draw(fake, site, real.get(index))
        elif info.kind == EMPTY:
            recorder.storages.adopt(out).unwritten = True
        elif info.kind == OPERATION:
            self._emit(info, site, values, recorder._written(info, args, kwargs, out, values), real)
        elif info.kind not in (VIEW, SKIP):
            raise NotReplayable(info.name)
        return out

    def _decomposed(self, info: OperatorInfo, args: Any, kwargs: Any, site: Site, real: Real) -> Any:
        """An operation that is not modelled, by the user's definition or the framework's own decomposition."""
        definition = definitions.get(info.func)
        formula = torch._decomp.decomposition_table.get(info.func) if definition is None else definition.call
        if formula is None:
            raise NotReplayable(info.name)
        with Parts(lambda func, given, named: self.operation(func, given, named, site, {})):
            out = formula(*args, **kwargs)
        results = list(out) if isinstance(out, (list, tuple)) else [out]
        for position, tensor in real.items():  # Kernels keep some statistics wider than the formula states.
            if results[position].dtype != tensor.dtype:
                cast = torch.ops.aten._to_copy.default
                results[position] = self.operation(cast, (results[position],), {"dtype": tensor.dtype}, site, {})
        return tuple(results) if isinstance(out, (list, tuple)) else results[0]

    def _dropout(self, x: torch.Tensor, p: float, site: Site, real: Real) -> tuple[torch.Tensor, torch.Tensor]:
        """The mask is a draw; the rest is what its derivative does, too."""
        with self._fake:
            mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        self._draw(mask, site, real.get(1))
        return self.operation(SCALED, (x, mask, dropout_scale(p)), {}, site, {}), mask

    def _draw(self, fake: torch.Tensor, site: Site, content: torch.Tensor | None) -> None:
        """What is drawn, or depends on nothing but what was, is a leaf once the region hands it out."""
        if content is None or not modelled(fake):
            self._drawn.add(id(fake))
            self._kept.append(fake)
            return
        check_like(fake, content)
        self._recorder.storages.write_leaf_of(fake, content, RANDOM_LEAF, self._recorder.sites.draw(site[1]))

    def _emit(self, info: OperatorInfo, site: Site, values: list[Any], written: Any, real: Real) -> None:
        recorder = self._recorder
        results = []
        decision = 0
        last = len(written) - 1 if info.last_result_decision else -1
        for position, (tensor, name, layout) in enumerate(written):
            if tensor is None:
                results.append((ABSENT, 0, 0, name, 0))
                continue
            window, count, base = recorder.storages.write(tensor, layout=layout)
            content = self._content.get(id(tensor)) if name else real.get(position)
            payload = 0
            if content is not None and window[0] and tensor.numel():
                check_like(tensor, content)
                if info.result_decision or position == last:
                    payload = recorder.storages.payload(recorder.arena.copy_tensor(content))
                if info.positive_side and not decision:
                    decision = recorder.storages.payload(recorder.arena.copy_positive_side(content))
            results.append((window, count, base, name, payload))
        if any(result[0][0] for result in results):
            phase, module, source = site
            place = (phase, source, module)
            recorder.append_op(("op", info, values, results, *place, decision, self._name, 0, self._defined))

    def hand_over(self, fake: Any, tensor: torch.Tensor) -> None:
        """The region's output, in the memory that it really has: a copy of what the graph computed."""
        recorder = self._recorder
        if not isinstance(fake, torch.Tensor):
            raise NotReplayable("an output that was recorded as a number")
        inner, outer = recorder.storages.entry(fake), recorder.storages.entry(tensor)
        if inner is not None and inner is outer:
            return  # An input handed out again.
        if id(fake) in self._drawn:
            raise NotReplayable("a random number that is handed out")
        check_like(fake, tensor)
        self.give(recorder.storages.read(fake), tensor, recorder.outputs)

    def give(self, source: Window, tensor: torch.Tensor, observed: bool) -> None:
        """Writes a value into a real tensor. What a definition says ends here, and is held as the tensor holds it."""
        recorder = self._recorder
        info = recorder.plan.info(torch.ops.aten.clone.default)
        values = [source, *[UNSET] * (len(info.arguments) - 1)]
        observed = observed and tensor.numel() > 0
        payload = recorder.storages.payload(recorder.arena.copy_tensor(tensor)) if observed else 0
        results = [(*recorder.storages.write(tensor), "", payload)]
        phase, module, source_line = self._site
        region = "" if self._defined else self._name
        recorder.append_op(("op", info, values, results, phase, source_line, module, 0, region, 0, self._defined))

    def is_fake(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, self._fake_type)


def _fakes(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict):
        yield from _fakes(tuple(values.values()))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _fakes(value)


def _as_given(out: Any, real: Real) -> Any:
    """Fake results in the types that the real ones have: kernels keep some statistics wider than is stated."""
    given = list(out) if isinstance(out, (list, tuple)) else [out]
    for position, tensor in real.items():
        fake = given[position]
        if isinstance(fake, torch.Tensor) and fake.dtype != tensor.dtype and fake.shape == tensor.shape:
            given[position] = torch.empty_strided(fake.shape, fake.stride(), dtype=tensor.dtype, device=fake.device)
    return tuple(given) if isinstance(out, (list, tuple)) else given[0]


def check_like(fake: torch.Tensor, tensor: torch.Tensor) -> None:
    if fake.dtype != tensor.dtype or fake.shape != tensor.shape:
        raise NotReplayable(f"{tensor.dtype} {list(tensor.shape)} where {fake.dtype} {list(fake.shape)} was recorded")


# Operations of compilers, and those on integers' bits, that others, which are modelled, say as well.
REWRITTEN = {
    "prims::convert_element_type.default": lambda x, dtype: (torch.ops.aten._to_copy.default, (x,), {"dtype": dtype}),
    **{
        f"{namespace}::bitwise_{name}": lambda *args, func=func: _logical(func, *args)
        for namespace, end in (("aten", ".Tensor"), ("prims", ".default"))
        for name, func in (
            (f"and{end}", torch.ops.aten.logical_and.default),
            (f"or{end}", torch.ops.aten.logical_or.default),
            ("not.default", torch.ops.aten.logical_not.default),
        )
    },
}

# Modelled for all but rare arguments, for which their results are observed where that can be done.
_MOSTLY_MODELLED = tuple(
    f"aten::{name}"
    for name in ("index.Tensor", "_unsafe_index.Tensor", "index_put.default", "_unsafe_index_put.default")
)


def _logical(func: Any, *args: torch.Tensor) -> tuple[Any, Any, Any]:
    if any(tensor.dtype is not torch.bool for tensor in args):
        raise NotReplayable("bits of integers")
    return func, args, {}


def _rewritten(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    rewrite = REWRITTEN.get(f"{func._schema.name}.{func._schema.overload_name or 'default'}")
    return (func, args, kwargs) if rewrite is None else rewrite(*args, **kwargs)


def is_modelled(info: OperatorInfo, plan: Plan) -> bool:
    if info.name in _MOSTLY_MODELLED:
        return (info.name, True) not in plan.wanted
    return info.lowered_in_regions


def draws(info: OperatorInfo) -> bool:
    """Whether all that the operation gives is random; the compiler draws by operations of its own."""
    return info.kind == RANDOM or info.base.startswith(("inductor_random", "inductor_seed", "inductor_lookup_seed"))
