"""What the daemon asks a capture for."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch

from .schema import OperatorInfo


class CaptureFailed(Exception):
    """The capture of this step ended early; `reason` is counted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Plan:
    """What the daemon asks for: which operations it models, and which of their outcomes are decisions.

    `lowered` None: nothing is modelled, every result is observed.
    """

    def __init__(
        self,
        lowered: Iterable[str] | None = None,
        positive_side: Iterable[str] = (),
        result_decision: Iterable[str] = (),
        last_result_decision: Iterable[str] = (),
        chunk_bytes_max: int = 1 << 20,
        step_bytes_max: int = 0,
        region_chunk_bytes_max: int = 0,
        cuda_regions: bool = False,
        wanted: Iterable[tuple[str, bool]] = (),
        batch_bytes_max: int = 0,
        carried: bool = False,
    ) -> None:
        self.lowered = None if lowered is None else frozenset(lowered)
        # Operations that are modelled, but not with the arguments that some of them had in an earlier step: by name,
        # and whether that was inside of a compiled region.
        self.wanted = frozenset(wanted)
        self.positive_side = frozenset(positive_side)
        self.result_decision = frozenset(result_decision)
        self.last_result_decision = frozenset(last_result_decision)
        self.chunk_bytes_max = min(chunk_bytes_max or 1 << 20, 1 << 20)
        self.step_bytes_max = step_bytes_max
        self.region_chunk_bytes_max = region_chunk_bytes_max  # 0: the daemon takes no shared memory.
        self.cuda_regions = cuda_regions
        self.batch_bytes_max = batch_bytes_max  # 0: the daemon takes one frame a message.
        self.carried = carried  # The daemon takes taps of gradients that a step leaves.
        self._infos: dict[int, tuple[Any, OperatorInfo]] = {}  # By the address of an operation, which is held.
        self._special: dict[tuple[Any, str], OperatorInfo] = {}

    def wanting(self, wanted: Iterable[tuple[str, bool]]) -> Plan:
        """This plan, or one that asks for the results of these operations too."""
        wanted = self.wanted.union(wanted)
        if wanted == self.wanted:
            return self
        plan = copy.copy(self)
        plan.wanted = wanted
        plan._infos, plan._special = {}, {}
        return plan

    def alone(self) -> Plan:
        """This plan, for a step that no other follows: nothing adds to the gradients that it leaves."""
        plan = copy.copy(self)
        plan.carried = False
        return plan

    def info(self, func: Any) -> OperatorInfo:
        known = self._infos.get(id(func))  # Hashing an operation takes longer.
        if known is None:
            if not isinstance(func, torch._ops.OpOverload):
                raise CaptureFailed("higher_order_op", f"{func}: a higher-order operation is not followed")
            info = OperatorInfo(func)
            info.lowered = self.lowered is not None and info.name in self.lowered
            info.wanted = (info.name, False) in self.wanted
            info.lowered_in_regions = info.lowered and (info.name, True) not in self.wanted
            info.positive_side = info.name in self.positive_side
            info.result_decision = info.name in self.result_decision
            info.observed = not info.lowered or info.wanted or info.result_decision
            info.last_result_decision = info.name in self.last_result_decision
            known = self._infos[id(func)] = (func, info)
        return known[1]

    def of_kind(self, info: OperatorInfo, kind: str) -> OperatorInfo:
        """The operation on tensors of a kind that cannot be described: one of its own."""
        special = self._special.get((info.func, kind))
        if special is None:
            special = copy.copy(info)
            special.name = f"{info.name} on {kind}"
            special.lowered = self.lowered is not None and special.name in self.lowered
            special.wanted = (special.name, False) in self.wanted
            special.lowered_in_regions = False
            special.positive_side = special.result_decision = special.last_result_decision = False
            special.observed = not special.lowered or special.wanted
            self._special[(info.func, kind)] = special
        return special
