"""Calls of operations whose mathematics the user told (definition.py), or plumbline.formulas tells, in a captured step.
Each is written down as the operations of its formula, from its real inputs to its real results, which are observed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .capture import Pending, Recorder
from .definition import UNTOLD, WORKSPACE, Definition, definitions
from .errors import PlumblineError
from .formulas import formulas
from .plan import CaptureFailed
from .schema import COLLECTIVE, RANDOM, SCALAR, OperatorInfo
from .shadow import NotReplayable, Parts, Shadow
from .sparse_sums import SparseSum, sum_of
from .storages import UNWRITTEN, Written

ERRORS_MAX = 16  # Of one step.


class DefinedCalls:
    """What a recorder does with the operations that have a definition."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.errors: list[str] = []  # Why the user's definitions could not be followed, each once.

    def begins(self, info: OperatorInfo, pending: Pending, args: Any, kwargs: Any) -> DefinedCall | SparseSum | None:
        """Before the operation runs; `pending`: its arguments' windows. None: it has no definition."""
        if pending[2] and (found := sum_of(self._recorder, info, pending, args, kwargs)) is not None:
            return found
        definition = definitions.get(info.func) if definitions else None
        if definition is None:
            definition = formulas.get(info.name)
            if definition is None or (info.lowered and not (definition.instead and definition.instead(*args))):
                return None
        if pending[2]:
            return self.fails(definition, definition.error(f"expected tensors that are modelled, found {pending[2]}"))
        return DefinedCall(self._recorder, self, definition, info, pending, args, kwargs)

    def fails(self, definition: Definition, error: PlumblineError) -> None:
        """What is told here and does not fit these arguments is an operation that is not known, and no error."""
        if definition.by_user and str(error) not in self.errors and len(self.errors) < ERRORS_MAX:
            self.errors.append(str(error))


class DefinedCall:
    """One call."""

    def __init__(
        self,
        recorder: Recorder,
        calls: DefinedCalls,
        definition: Definition,
        info: OperatorInfo,
        pending: Pending,
        args: Any,
        kwargs: Any,
    ) -> None:
        self._recorder = recorder
        self._calls = calls
        self._definition = definition
        self._info = info
        self._pending = pending
        self._site = pending[0]
        self._args = args
        self._kwargs = kwargs
        given = [args[i] if i < len(args) else kwargs.get(a.name) for i, a in enumerate(info.arguments)]
        self._measured: dict[str, Any] | PlumblineError = {}
        try:
            self._measured = self._measure()
        except PlumblineError as error:
            self._measured = error
        except Exception as error:
            self._measured = definition.error(f"expected arguments that can be measured, found it {_raised(error)}")
        # Each argument has a window on what it held, and all of them are observed.
        self._windows = [self._observed(*pair) for pair in zip(given, pending[1], strict=True)]

    def _measure(self) -> dict[str, Any]:
        if self._definition.measured is None:
            return {}
        for value in _flat([*self._args, *self._kwargs.values()]):
            if isinstance(value, torch.Tensor) and value.device.type != "cpu":
                raise self._definition.error("expected tensors on the host, whose size is measured")
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            return self._definition.measure(self._args, self._kwargs)

    def _observed(self, given: Any, value: Any) -> Any:
        if isinstance(given, torch.Tensor):
            return self._recorder.observe_input(given, value, self._site)
        if isinstance(given, (list, tuple)) and type(value) is list:
            return [self._observed(*pair) for pair in zip(given, value, strict=True)]
        return value

    def ends(self, out: Any) -> None:
        """Writes the call down: by its definition, or, where that cannot be followed, as one that is not known."""
        recorder = self._recorder
        written = recorder._written(self._info, self._args, self._kwargs, out, self._pending[1])
        shadow = _FormulaShadow(recorder, self._site, self._definition)
        mark = shadow.mark([tensor for tensor, *_ in written])
        try:
            if isinstance(self._measured, PlumblineError):
                raise self._measured
            with _outside_of_dispatch():
                shadow.run(self._given(shadow), written)
            return
        except CaptureFailed as error:
            problem = self._definition.error(f"expected operations that can be followed, found {error}")
        except NotReplayable as error:
            problem = self._definition.error(f"expected operations that are modelled, found {error}")
        except PlumblineError as error:
            problem = error
        except Exception as error:
            problem = self._definition.error(f"expected a formula of tensors, found it {_raised(error)}")
        finally:
            shadow.close()
        shadow.roll_back(mark)
        self._calls.fails(self._definition, problem)
        recorder.emit(self._info, self._pending, written)

    def _given(self, shadow: Shadow) -> tuple[list[Any], dict[str, Any]]:
        """The call's arguments, with fake tensors in place of real ones."""

        def stand_in(given: Any, value: Any) -> Any:
            if isinstance(given, torch.Tensor):
                return shadow.stand_in(value, given.device)
            if isinstance(given, (list, tuple)) and type(value) is list:
                return [stand_in(*pair) for pair in zip(given, value, strict=True)]
            return given

        names = {argument.name: index for index, argument in enumerate(self._info.arguments)}

        def given_as(name: str, given: Any) -> Any:
            if name in self._definition.numbers and isinstance(given, torch.Tensor):
                if given.device.type != "cpu":
                    raise NotReplayable(f"{name} on a device")
                return given.tolist()
            return stand_in(given, self._windows[names[name]])

        args = [given_as(self._info.arguments[index].name, given) for index, given in enumerate(self._args)]
        return args, {name: given_as(name, given) for name, given in self._kwargs.items()} | self._measured


class _FormulaShadow(Shadow):
    """A formula, run on fake tensors."""

    def __init__(self, recorder: Recorder, site: tuple[int, str, str], definition: Definition) -> None:
        super().__init__(recorder, site, definition.name, definition.name)
        self._definition = definition
        self._active = [definition]  # And those that its formula calls.
        self._inputs: set[int] = set()  # Storages that are not the formula's own.
        self._foreign: dict[int, torch.Tensor] = {}  # Stand-ins of real tensors that the formula brought along.

    def run(self, given: tuple[list[Any], dict[str, Any]], written: list[Written]) -> None:
        self._inputs.update(base.untyped_storage()._cdata for base in self._bases.values())
        with Parts(self._part):
            out = self._definition.call(*given[0], **given[1])
        results = [self._mine(result) for result in _flat(out)]
        # A tensor without elements is as a buffer that a kernel might have used: there is nothing to judge.
        for position, (result, (tensor, *_)) in enumerate(zip(results, written, strict=False)):
            if tensor is not None and not tensor.numel() and isinstance(result, torch.Tensor) and not result.numel():
                results[position] = WORKSPACE
        found = ", ".join(_text(result) for result in results)
        if len(results) != len(written):
            raise self._definition.error(
                f"expected {len(written)} result{'' if len(written) == 1 else 's'}, as the operation has, found {found}"
            )
        for position, (result, (tensor, *_)) in enumerate(zip(results, written, strict=True)):
            if (tensor is None and result is None) or result in (UNTOLD, WORKSPACE):
                continue
            right = isinstance(result, torch.Tensor) and tensor is not None
            if not right or (result.dtype, result.shape) != (tensor.dtype, tensor.shape):
                raise self._definition.error(
                    f"result {position}: expected {_text(tensor)}, as the operation gave, found {_text(result)}"
                )
        with self._recorder.storages.unconfirmed():
            sources = [
                self._recorder.storages.read(result) if isinstance(result, torch.Tensor) else None for result in results
            ]
        for source, result, (tensor, *_) in zip(sources, results, written, strict=True):
            if source is not None:
                self.give(source, tensor, observed=True)
            elif tensor is None:
                continue
            elif result is UNTOLD:
                self._recorder.storages.adopt(tensor).unwritten = True
            elif result is WORKSPACE:
                self._recorder.storages.write_leaf(tensor, UNWRITTEN, "")

    def _part(self, func: Any, args: Any, kwargs: Any) -> Any:
        """One operation of the formula."""
        inner = definitions.get(func)
        if inner is None:
            inner = self._told_here(func, args)
        if inner in self._active:
            raise self._definition.error(f"expected a formula of other operations, found that it calls {inner.name}")
        args, kwargs = self._mine(args), self._mine(kwargs)
        if inner is not None:
            self._active.append(inner)
            with Parts(self._part):
                out = inner.call(*args, **kwargs)
            self._active.pop()
            return out
        info = self._recorder.plan.info(func)
        if info.composed(args):
            with Parts(self._part):
                return func.decompose(*args, **kwargs)
        if info.kind == RANDOM or (torch.Tag.nondeterministic_seeded in func.tags and not info.lowered):
            raise self._definition.error(f"expected a formula without chance, found that it draws ({info.name})")
        if info.kind == SCALAR:
            raise self._definition.error("expected a formula of tensors, found that it reads a number out of one")
        if info.kind == COLLECTIVE:
            raise self._definition.error(f"expected a formula of this rank alone, found {info.name}")
        for index in info.writes:
            value = args[index] if index < len(args) else kwargs.get(info.arguments[index].name)
            for tensor in _flat(value):
                if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata in self._inputs:
                    raise self._definition.error(
                        f"expected a formula that leaves its arguments as they are, found that it writes one"
                        f" ({info.name})"
                    )
        with self._recorder.storages.unconfirmed():
            return self.operation(func, args, kwargs, self._site, {})

    def _told_here(self, func: Any, args: Any) -> Definition | None:
        """The formula of an operation that the daemon does not model."""
        info = self._recorder.plan.info(func)
        inner = formulas.get(info.name)
        if inner is None or inner.measured is not None or inner.numbers or inner in self._active:
            return None
        return None if info.lowered and not (inner.instead and inner.instead(*args)) else inner

    def _mine(self, values: Any) -> Any:
        """Stand-ins for the real tensors among the arguments: what the formula brought along is data."""
        if isinstance(values, torch.Tensor):
            if self.is_fake(values):
                return values
            fake = self._foreign.get(id(values))
            if fake is None:
                fake = self.stand_in(self._recorder.storages.read(values), values.device)
                self._foreign[id(values)] = fake
                self._kept.append(values)
                self._inputs.add(fake.untyped_storage()._cdata)
            return fake
        if isinstance(values, dict):
            return {name: self._mine(value) for name, value in values.items()}
        if isinstance(values, (list, tuple)):
            return (tuple if isinstance(values, tuple) else list)(self._mine(value) for value in values)
        return values


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, (list, tuple)):
        for value in values:
            yield from _flat(value)
    else:
        yield values


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return "none" if value is None else f"{type(value).__name__} {value!r}"[:80]


def _raised(error: Exception) -> str:
    if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
        return f"depends on what tensors hold ({error})"
    return f"raised {type(error).__name__}: {error}"[:500]


@contextlib.contextmanager
def _outside_of_dispatch() -> Iterator[None]:
    """As if called by the program itself, and not by an operation that runs: composite operations and autograd work,
    and none of the modes that the program entered applies."""
    with (
        torch._C._ForceDispatchKeyGuard(_INCLUDED, _EXCLUDED),
        torch.inference_mode(False),
        torch._C._DisableAutocast(),
        _disable_current_modes(),
        torch.no_grad(),
    ):
        yield


# What a thread begins with.
_INCLUDED = torch._C.DispatchKeySet(torch._C.DispatchKey.BackendSelect).add(torch._C.DispatchKey.ADInplaceOrView)
_EXCLUDED = torch._C._dispatch_tls_local_exclude_set()
