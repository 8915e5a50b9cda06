"""Collectives of a run whose ranks are judged together: what this rank sends and gets, so that the daemon can tie it to
what the others sent (server/ingest/join.h). Records: one `send` for each tensor, with its content, when the call is
made; one `receive` for each tensor that it writes, once something reads that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from .regions import Region, Share
from .schema import OperatorInfo

# Each base name has a kind and the positions of the arguments that are read and written; -1 stands for what is
# returned, -2 for nothing.
_KINDS: dict[str, tuple[str, int, int]] = {
    "allreduce_": ("all_reduce", 0, 0),
    "allreduce_coalesced_": ("all_reduce", 0, 0),
    "all_reduce": ("all_reduce", 0, -1),
    "all_reduce_": ("all_reduce", 0, 0),
    "all_reduce_coalesced": ("all_reduce", 0, -1),
    "all_reduce_coalesced_": ("all_reduce", 0, 0),
    "reduce_": ("reduce", 0, 0),
    "broadcast_": ("broadcast", 0, 0),
    "broadcast": ("broadcast", 0, -1),
    "allgather_": ("all_gather", 1, 0),
    "gather_": ("gather", 1, 0),
    "_allgather_base_": ("all_gather_flat", 1, 0),
    "allgather_into_tensor_coalesced_": ("all_gather_flat", 1, 0),
    "all_gather_into_tensor": ("all_gather_flat", 0, -1),
    "all_gather_into_tensor_coalesced": ("all_gather_flat", 0, -1),
    "all_gather_into_tensor_out": ("all_gather_flat", 0, 3),
    "scatter_": ("scatter", 1, 0),
    "reduce_scatter_": ("reduce_scatter", 1, 0),
    "_reduce_scatter_base_": ("reduce_scatter_flat", 1, 0),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter_flat", 1, 0),
    "reduce_scatter_tensor": ("reduce_scatter_flat", 0, -1),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_flat", 0, -1),
    "reduce_scatter_tensor_out": ("reduce_scatter_flat", 0, 4),
    "send": ("point_to_point", 0, -2),
    "recv_": ("point_to_point", 0, 0),
    "recv_any_source_": ("point_to_point", 0, 0),
    "alltoall_": ("all_to_all", 1, 0),
    "alltoall_base_": ("all_to_all_flat", 1, 0),
    "all_to_all_single": ("all_to_all_flat", 0, -1),
}
_REDUCTIONS = {"sum", "avg", "product", "min", "max"}


@dataclass
class Call:
    """This rank's share in one call. Sends and receives by part."""

    kind: str
    group: list[int]
    reduction: str = ""
    root: int = -1
    tag: int = -1  # Of a message from one rank to another, which only those of its tag follow; -1: of a collective.
    splits: list[int] = field(default_factory=list)
    sends: list[torch.Tensor] = field(default_factory=list)
    receives: list[torch.Tensor] = field(default_factory=list)
    returns: bool = False  # What it returns is received.

    @property
    def send(self) -> Region:
        return Region(f"plumbline::send.{self.kind}", Share.SEND)

    @property
    def receive(self) -> Region:
        return Region(f"plumbline::receive.{self.kind}", Share.RECEIVE)

    def attributes(self, number: int, part: int) -> list[Any]:
        return [self.group, number, part, self.reduction, self.root, self.tag]

    @property
    def channel(self) -> tuple[int, ...]:
        """Calls of one channel are made in one order by all who take part."""
        return (self.tag, *self.group)


@dataclass
class AnySource(Call):
    """A message from whichever rank sends one: which it was is known once it is there."""

    ranks: list[int] = field(default_factory=list)  # Of the group, by their places in it.
    number: int = 0
    _work: Any = None

    def begun(self, work: Any) -> None:
        unbox = getattr(torch.distributed.Work, "unbox", None)
        self._work = unbox(work) if isinstance(work, torch.ScriptObject) and unbox is not None else None

    def found(self) -> bool:
        """Whether the sender is known: `root`, and the first of `group`, from then on."""
        place = -1 if self._work is None else self._work._source_rank()
        if 0 <= place < len(self.ranks):
            self.root = self.ranks[place]
            self.group = [self.root, *self.group]
            self._work = None
        return self.root >= 0


def call_of(info: OperatorInfo, args: Any, kwargs: Any) -> Call | None:
    """None: a collective that cannot be tied to those of other ranks."""
    described = _KINDS.get(info.base)
    if described is None:
        return None
    kind, read, written = described
    values = dict(zip((argument.name for argument in info.arguments), args, strict=False)) | (kwargs or {})
    by_position = [values.get(argument.name) for argument in info.arguments]
    group = _group(values)
    if group is None:
        return None
    ranks = torch.distributed.get_process_group_ranks(group)
    if kind == "point_to_point":
        return _message(values, ranks, _flat(by_position[read]))
    me, root = ranks.index(torch.distributed.get_rank()), values.get("root_rank", values.get("src"))
    call = Call(kind, ranks, root=-1 if root is None else ranks[root], returns=written < 0)
    if "reduce" in kind:
        call.reduction = _reduction(values["reduce_op"])
        if not call.reduction:
            return None
    sends, receives = _flat(by_position[read]), [] if written < 0 else _flat(by_position[written])
    if kind not in ("broadcast", "scatter") or root == me:
        call.sends = sends
    if not (kind == "broadcast" and root == me):
        call.receives = receives
    if kind == "all_to_all_flat":
        splits = values.get("input_split_sizes") or []
        row = sends[0][0].numel() if sends[0].dim() and sends[0].shape[0] else 1
        call.splits = [int(rows) * row for rows in splits]
    return call


def _message(values: dict[str, Any], ranks: list[int], tensors: list[torch.Tensor]) -> Call:
    """What one rank sends and another receives: a broadcast among two."""
    me = torch.distributed.get_rank()
    if "dst" not in values and "src" not in values:
        return AnySource("point_to_point", [me], tag=int(values["tag"]), receives=tensors, ranks=ranks)
    sends = "dst" in values
    other = ranks[values["dst" if sends else "src"]]
    source, target = (me, other) if sends else (other, me)
    call = Call("point_to_point", [source, target], root=source, tag=int(values["tag"]))
    if sends:
        call.sends = tensors
    else:
        call.receives = tensors
    return call


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value or () for tensor in _flat(item)]


def _group(values: dict[str, Any]) -> Any:
    group = values.get("process_group", values.get("group_name"))
    if isinstance(group, str):
        return torch.distributed.distributed_c10d._resolve_process_group(group)
    if isinstance(group, torch.ScriptObject):
        return torch.distributed.ProcessGroup.unbox(group)
    return group if isinstance(group, torch.distributed.ProcessGroup) else None


def _reduction(value: Any) -> str:
    if isinstance(value, torch.ScriptObject):
        operation = torch.distributed.ReduceOp.unbox(value)
        for name in _REDUCTIONS:
            if operation == getattr(torch.distributed.ReduceOp, name.upper()):
                return name
        return ""
    name = str(value).lower()
    return name if name in _REDUCTIONS else ""
