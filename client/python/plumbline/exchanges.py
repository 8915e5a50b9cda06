"""What a step's collectives read, and what they write, which is there once something else touches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .collectives import AnySource, Call, call_of
from .regions import Region, collective
from .schema import OperatorInfo
from .sites import FORWARD
from .storages import ABSENT, modelled

if TYPE_CHECKING:
    from .capture import Recorder, Site


class Exchanges:
    """Of one step."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._storages = recorder.storages
        self.scattered: dict[int, int] = {}  # Storages that a reduce-scatter writes, and its group's size.
        self._calls: dict[tuple[int, ...], int] = {}  # Made so far, by channel.
        self._shared: tuple[Call, int, Site] | None = None  # The last collective, where it is tied.
        self._call: tuple[Region, list[Any], Site] = (Region(""), [], (FORWARD, "", ""))
        # Messages of whom is not known yet, and where they are received.
        self._unknown: list[tuple[AnySource, Site]] = []
        self._from_any: AnySource | None = None  # The last call, where it is such.

    def begins(self, info: OperatorInfo, args: Any, kwargs: Any) -> None:
        """Notes what a collective is about to read; what it writes is taken once something else touches it."""
        self._shared = self._from_any = None
        self.name_sources()
        call = call_of(info, args, kwargs) if self._recorder.ranks > 1 else None
        if call is not None and all(modelled(tensor) for tensor in (*call.sends, *call.receives)):
            if isinstance(call, AnySource):
                self._from_any = call
                for tensor in call.receives:
                    self._storages.adopt(tensor).settle(tensor)
            else:
                self._share(call)
            return
        reads, writes, attributes = collective(info.name, info.base, (*args, *(kwargs or {}).values()))
        windows = [self._storages.read(tensor) for tensor in reads]
        self._call = (Region(info.name), [windows, attributes], self._recorder.sites.current())
        if not info.name.startswith("_c10d_functional") or info.base.endswith("_"):
            for tensor in writes:
                self._await(tensor)

    def ends(self, info: OperatorInfo, out: Any) -> None:
        """Awaits what a collective returned."""
        if self._from_any is not None:
            self._await_any(self._from_any, out)
            return
        fresh = [out] if isinstance(out, torch.Tensor) else out if info.fresh else []
        results = [tensor for tensor in fresh if isinstance(tensor, torch.Tensor)]
        if self._shared is not None:
            if self._shared[0].returns:
                self._receive(results)
            return
        for tensor in results:
            if modelled(tensor):
                self._await(tensor)

    def _share(self, call: Call) -> None:
        """Sends what this rank gives to a collective, and awaits what it gets."""
        site = self._recorder.sites.current()
        self._shared = (call, self._announce(call, site), site)
        self._receive(call.receives)

    def _announce(self, call: Call, site: Site) -> int:
        """Sends what this rank gives to a collective. Returns the call's number."""
        if call.reduction and self._recorder.on_reduction is not None:
            self._recorder.on_reduction(call.sends)
        number = self._calls.get(call.channel, 0)
        self._calls[call.channel] = number + 1
        phase, module, source = site
        for part, tensor in enumerate(call.sends):
            window, count = self._storages.read(tensor), tensor.numel()
            payload = self._storages.payload(self._recorder.arena.copy_tensor(tensor)) if count else 0
            content = (self._storages.fresh_value(), window[1], (count,), (1,), 0)
            values = [window, *call.attributes(number, part), call.splits]
            result = (content, count, 0, "", payload)
            self._recorder.records.append(("op", call.send, values, [result], phase, source, module, 0))
        if not call.sends:  # Tells that the call was made.
            code = modelled(call.receives[0]) if call.receives else 1
            nothing = ((self._storages.fresh_value(), code, (0,), (1,), 0), 0, 0, "", 0)
            values = [ABSENT, *call.attributes(number, 0), []]
            self._recorder.records.append(("op", call.send, values, [nothing], phase, source, module, 0))
        return number

    def _await_any(self, call: AnySource, work: Any) -> None:
        """A message from whoever sends one: who it was is known once it was waited for."""
        call.begun(work)
        site = self._recorder.sites.current()
        self._unknown.append((call, site))
        tensor = call.receives[0]

        def take() -> None:
            self.name_sources()
            if call.root < 0:  # Read before it was waited for.
                self._region(Region("c10d::recv_any_source_"), [[], ""], site, [tensor])
            else:
                self._region(call.receive, call.attributes(call.number, 0), site, [tensor])

        self._storages.adopt(tensor).await_part(tensor, take)

    def name_sources(self) -> None:
        """Messages whose sender is known by now take their numbers, in the order of the calls."""
        waiting = []
        for call, site in self._unknown:
            if call.found():
                call.number = self._announce(call, site)
            else:
                waiting.append((call, site))
        self._unknown = waiting

    def _receive(self, tensors: list[torch.Tensor]) -> None:
        assert self._shared is not None
        call, number, site = self._shared
        for part, tensor in enumerate(tensors):
            entry = self._storages.adopt(tensor)
            entry.settle(tensor)  # What the same place got before.
            attributes = call.attributes(number, part)

            def take(tensor: torch.Tensor = tensor, attributes: list[Any] = attributes) -> None:
                self._region(call.receive, attributes, site, [tensor])

            entry.await_part(tensor, take)
            if call.kind.startswith("reduce_scatter"):
                self.scattered[tensor.untyped_storage()._cdata] = len(call.group)

    def delivers(self, func: Any, args: Any) -> bool:
        """Gloo reduces a copy of all input, and copies this rank's share of that to the result once it is waited for:
        no operation of the step's."""
        if func is not torch.ops.aten.copy_.default:
            return False
        result, source = args[:2]
        group = self.scattered.get(result.untyped_storage()._cdata, 0)
        entry = self._storages.entry(result)
        if not group or entry is None or not entry.pending or self._storages.entry(source) is not None:
            return False
        return source.untyped_storage().nbytes() == group * result.numel() * result.element_size()

    def _await(self, tensor: torch.Tensor) -> None:
        """A storage's next reader finds the result of the last collective in it."""
        region, values, site = self._call
        entry = self._storages.adopt(tensor)
        entry.settle(tensor)
        entry.await_part(tensor, lambda: self._region(region, values, site, [tensor]))

    def _region(self, region: Region, values: list[Any], site: Site, outputs: list[torch.Tensor]) -> None:
        results = []
        for tensor in outputs:
            payload = self._storages.payload(self._recorder.arena.copy_tensor(tensor)) if tensor.numel() else 0
            results.append((*self._storages.write(tensor), "", payload))
        phase, module, source = site
        self._recorder.records.append(("op", region, values, results, phase, source, module, 0))
