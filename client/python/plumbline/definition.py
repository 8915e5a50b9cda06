"""The mathematics of operations that the audit does not model: as the user tells it, and as plumbline.formulas does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .errors import PlumblineError

Formula = Callable[..., Any]

# PyTorch's own operations: what they compute is not the user's to say.
_NOT_THE_USERS = ("aten", "prim", "prims", "c10d", "_c10d_functional", "profiler", "inductor", "fsdp")

# In place of a result of which a formula says nothing, as a place among equal numbers; of one that nothing but the
# operation's derivative reads, whose formula does without it.
UNTOLD, WORKSPACE = object(), object()

definitions: dict[Any, Definition] = {}  # The user's, by operator overload.


class Definition:
    """An operation's mathematics."""

    def __init__(
        self,
        func: Any,
        formula: Formula,
        by_user: bool = True,
        numbers: Sequence[str] = (),
        instead: Callable[..., bool] | None = None,
        measured: Callable[..., dict[str, Any]] | None = None,
    ) -> None:
        self.func = func
        self.formula = formula
        self.by_user = by_user
        self.numbers = frozenset(numbers)  # Tensors on the host that the formula takes as lists of their numbers.
        self.instead = instead  # Of an operation that is modelled: with which arguments it is not.
        # Given the real arguments, on the host: numbers that say how many terms of a series the formula needs.
        self.measured = measured
        schema = self.func._schema
        self.name = f"{schema.name}.{schema.overload_name or 'default'}"
        self._positional = [argument for argument in schema.arguments if not argument.kwarg_only]
        self._named = [argument for argument in schema.arguments if argument.kwarg_only]

    def checked(self) -> Definition:
        """Raises PlumblineError where the formula cannot be one of the operation."""
        self._check_schema()
        self._check_formula()
        return self

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """What the formula gives for the operation's arguments, those with defaults included, and for what was
        measured."""
        named = {a.name: kwargs.pop(a.name, a.default_value) for a in self._named}
        values = [*args, *(kwargs.pop(a.name, a.default_value) for a in self._positional[len(args) :])]
        return self.formula(*values, **named, **kwargs)

    def measure(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """The numbers that the formula asks for; empty where it asks for none."""
        return {} if self.measured is None else self.measured(*args, **kwargs)

    def error(self, text: str) -> PlumblineError:
        return PlumblineError(f"define({self.func._schema.name!r}): {text}")

    def _check_schema(self) -> None:
        schema = self.func._schema
        if schema.name.split("::")[0] in _NOT_THE_USERS:
            raise self.error("expected an operation of a library of your own, found one of PyTorch's")
        if torch._C._dispatch_has_kernel_for_dispatch_key(self.func.name(), "CompositeImplicitAutograd"):
            raise self.error("expected an operation with a kernel, found one that is made of others, which are audited")
        for value in schema.returns:
            if "Tensor" not in str(value.type):
                raise self.error(f"expected an operation that returns tensors, found {value.type} in {schema}")
            if value.alias_info is not None and not value.alias_info.is_write:
                raise self.error(f"expected an operation that computes its result, found a view in {schema}")
        if not schema.returns and not any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments):
            raise self.error(f"expected an operation that returns or writes tensors, found {schema}")

    def _check_formula(self) -> None:
        if not callable(self.formula):
            raise self.error(f"expected a formula that can be called, found {self.formula!r}")
        try:
            signature = inspect.signature(self.formula)
        except (TypeError, ValueError):
            return  # Written in C: its first call tells.
        try:
            signature.bind(*self._positional, **{argument.name: None for argument in self._named})
        except TypeError:
            names = [argument.name for argument in self._positional] + [f"{argument.name}=" for argument in self._named]
            count = f"{len(names)} argument{'' if len(names) == 1 else 's'}"
            raise self.error(
                f"expected a formula that takes the operation's {count} ({', '.join(names)}), found {signature}"
            ) from None


def define(name: str, formula: Formula, *, backward: Formula | Mapping[str, Formula] | None = None) -> None:
    """Tells the mathematics of an operation that the audit does not know (a kernel of your own), in PyTorch operations.

    name: of a registered operation, "library::operation" or "library::operation.overload".
    formula: takes the operation's arguments, in the order of its schema (those that are keywords only, by name), and
    returns what the operation returns, then the new content of each argument that it writes, in the schema's order.
    Shapes and types are those that the operation gives. It is called on tensors without content, once for each call of
    the operation in a sampled step: it must not read their elements (`.item()`, conditions on them), draw random
    numbers, write its arguments or call the operation itself. Its own intermediate roundings do not matter.
    backward: the same for the operation's backward, where that is an operation of its own: a formula for the operation
    NAME_backward, or formulas by name. A backward that is written in PyTorch needs none.

    From the next sampled step on each call is audited against its formula, from the inputs that it really had, and what
    follows is judged by the formula's mathematics. A later definition replaces an earlier one. Raises PlumblineError
    where the formula cannot be one of the operation; what shows when the operation runs only, the step tells
    (Audit.errors(); compare() raises it), and the operation stays one that is not known.
    """
    made = [Definition(registered(name), formula).checked()]
    if backward is not None and not isinstance(backward, Mapping):
        backward = {f"{name.split('.')[0]}_backward": backward}
    made += [Definition(registered(other), its_formula).checked() for other, its_formula in (backward or {}).items()]
    definitions.update((definition.func, definition) for definition in made)


def registered(name: str) -> Any:
    """The operator overload of a name."""
    if not isinstance(name, str) or name.count("::") != 1 or not all(name.split("::")):
        raise PlumblineError(f"define: expected the name of an operation such as 'mylib::rms_norm', found {name!r}")
    library, _, operation = name.partition("::")
    base, _, overload = operation.partition(".")
    packet = getattr(getattr(torch.ops, library), base, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise PlumblineError(
            f"define({name!r}): expected the name of a registered operation (torch.library), found none of that name"
        )
    known = packet.overloads()  # type: ignore[no-untyped-call]
    if not overload:
        overload = "default" if "default" in known else known[0] if len(known) == 1 else ""
    if overload not in known:
        found = ", ".join(f"{library}::{base}.{each}" for each in known)
        raise PlumblineError(f"define({name!r}): expected one of the operation's overloads, {found}, found {name!r}")
    return getattr(packet, overload)
