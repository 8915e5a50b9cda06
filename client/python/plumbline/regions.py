"""Calls whose computation lies out of sight: collectives, and whatever else writes memory that the step then reads. One
opaque operation each, with what went in, where it is known, and what came out. A collective's results are there once it
was waited for, so that they are taken when something next touches them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .schema import OTHER, TENSOR, TENSORS

# Each base name has the positions of the arguments that it writes, and of those that it reads; others do both to all.
_COLLECTIVES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "allgather_": ((0,), (1,)),
    "_allgather_base_": ((0,), (1,)),
    "allgather_coalesced_": ((0,), (1,)),
    "allgather_into_tensor_coalesced_": ((0,), (1,)),
    "reduce_scatter_": ((0,), (1,)),
    "_reduce_scatter_base_": ((0,), (1,)),
    "reduce_scatter_tensor_coalesced_": ((0,), (1,)),
    "alltoall_": ((0,), (1,)),
    "alltoall_base_": ((0,), (1,)),
    "gather_": ((0,), (1,)),
    "scatter_": ((0,), (1,)),
    "recv_": ((0,), ()),
    "recv_any_source_": ((0,), ()),
    "send": ((), (0,)),
}


@dataclass(frozen=True)
class _Argument:
    name: str
    kind: int
    type: str = "str"
    default: Any = None


class Region:
    """Stands for an operator's schema in the record of such a call: its inputs, and everything else as text, unless it
    is one of the Shares."""

    def __init__(self, name: str, arguments: tuple[_Argument, ...] | None = None) -> None:
        self.name = name
        self.arguments = arguments or (_Argument("inputs", TENSORS), _Argument("attributes", OTHER))


class Share:
    """Arguments of a rank's share in a collective (collectives.py)."""

    RECEIVE = (
        _Argument("group", OTHER, "List[int]"),
        _Argument("call", OTHER, "int"),
        _Argument("part", OTHER, "int"),
        _Argument("reduction", OTHER),
        _Argument("root", OTHER, "int"),
        _Argument("tag", OTHER, "int"),
    )
    SEND = (_Argument("input", TENSOR), *RECEIVE, _Argument("splits", OTHER, "List[int]"))


OUT_OF_SIGHT = Region("plumbline::out_of_sight")


def collective(name: str, base: str, args: tuple[Any, ...]) -> tuple[list[torch.Tensor], list[torch.Tensor], str]:
    """What a collective reads, what it writes, and its attributes as text that is the same in every process."""
    everything = tuple(range(len(args)))
    written, read = _COLLECTIVES.get(base, (everything, everything))
    attributes = [_text(arg) for arg in args if not any(True for _ in _tensors([arg]))]
    reads = list(_tensors(args[i] for i in read if i < len(args)))
    return reads, list(_tensors(args[i] for i in written if i < len(args))), ",".join(filter(None, attributes))


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _text(value: Any) -> str:
    if isinstance(value, torch.ScriptObject):
        if "ReduceOp" not in str(value._type()):
            return ""  # The group's address says nothing.
        operation = torch.distributed.ReduceOp.unbox(value)
        return next((name for name in _REDUCTIONS if operation == getattr(torch.distributed.ReduceOp, name)), "")
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


_REDUCTIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
