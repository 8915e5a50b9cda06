"""The gradients of a step that are judged: those that its optimizers are given, before they are clipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from .changes import Changes, await_write
from .collected import LEFT, OTHER, Collected
from .scalings import UNSCALES, Scalings, covers
from .schema import OperatorInfo
from .shards import local
from .storages import Window, described

if TYPE_CHECKING:
    from .capture import Recorder
    from .taps import Taps

Term = tuple[Window, float, int]

_OTHERS = 0  # Of what waits for writes, the key that is no storage's.


class Gradients:
    """Marks what each backward leaves, follows what the program makes of that, and taps what an optimizer takes.

    A gradient is copied when it is about to be overwritten, when the optimizer starts, or when the step ends; held
    until then, and forgotten if another backward leaves another one before an optimizer took it."""

    def __init__(self, recorder: Recorder, taps: Taps) -> None:
        self._recorder = recorder
        self._taps = taps
        self.scalings = Scalings(recorder)
        self.collected = Collected(recorder)
        self._changes = Changes(recorder, taps, self.collected, self.scalings)
        self.weight = 1.0  # Of the last backward's.
        self.in_backward = False
        self.loss_scaled = False  # The program weighed gradients after backward in a way that its loss does not show.
        self._held: dict[str, tuple[torch.Tensor, float]] = {}
        # As they were before the program wrote over them, and what they had been scaled by until then; None: tensors
        # hold it.
        self._kept: dict[str, tuple[Term, float | None]] = {}
        self._given: set[str] = set()  # Of those, what the program collected.
        self._before: dict[str, int] = {}  # What lay there when the last backward began.
        self._owners: dict[str, torch.Tensor] = {}  # Their parameters.
        self._unreduced: dict[str, tuple[torch.Tensor, float]] = {}  # Of one rank, reduced by hand after backward.
        self._rounds: dict[str, int] = {}  # Gradients of a parameter that were tapped.
        self._unscaled: set[str] = set()  # A gradient scaler divided them for their optimizer.
        self._others = False  # Some gradient is made of several in a way that says nothing of what backward left.
        self._tapped: set[str] = set()
        self._took = False
        self._took_left = self._took_given = False  # What backward left; what the program made itself.
        self._handed: float | None = None  # The weight of what was handed to the program last.
        self._scanned = (-1, -1)

    def clear(self) -> None:
        for each in (self._held, self._kept, self._owners, self._unreduced):
            each.clear()
        self._changes.clear()

    # Backward.

    def backward_begins(self, weight: float) -> None:
        self.weight = weight
        self._recorder.before_write.clear()
        self._before = {}
        for parameter, name in self._taps.names.items():
            if parameter.grad is not None:
                self._follow(name)
                self._before[name] = self._value(local(parameter.grad))
        self.scalings.begin({})

    def backward_ended(self) -> None:
        """Marks the gradients that this backward left."""
        for parameter, name in self._taps.names.items():
            if parameter.grad is None or parameter.grad.layout is not torch.strided:
                self._forget(name)
                continue
            grad = _view(parameter.grad)
            entry = self._recorder.storages.entry(grad)
            if entry is None or entry.leaf or not (entry.value or entry.pending):
                self._forget(name)
            elif entry.pending or self._before.get(name) != entry.value:
                self._forget(name)
                for kind in ("grad", "step_grad"):
                    self._taps.note_part(f"{kind}:{name}", parameter.grad, parameter)
                self._held[name], self._owners[name] = (grad, self.weight), parameter
                self.collected.left(name, entry.value, self._value(local(parameter)))
                self._changes.left(name, grad, entry.value, self.weight)
            if name in self._held:
                self._await_write(name, self._held[name][0])
        self.scalings.begin({name: grad for name, (grad, _) in self._held.items()})
        self._changes.follow_all(self._held)
        if self._handed is not None or any(self.collected.several(name) for name in self._held):
            self._await_others()

    def handed(self, weight: float) -> None:
        """Gradients were handed to the program, which may put them where an optimizer looks for them."""
        self._handed = weight
        self._await_others()

    def _await_others(self) -> None:
        self._recorder.before_write[_OTHERS] = lambda *_: None  # So that writes are told at all.

    def _forget(self, name: str) -> None:
        self._held.pop(name, None)
        self._kept.pop(name, None)
        self._given.discard(name)
        self._changes.forget(name)

    def _value(self, tensor: torch.Tensor) -> int:
        entry = self._recorder.storages.entry(described(tensor)) if tensor.layout is torch.strided else None
        return 0 if entry is None else entry.value

    # What the program writes.

    def _await_write(self, name: str, gradient: torch.Tensor) -> None:
        def about_to_write(written: torch.Tensor, info: OperatorInfo | None, factor: Any) -> None:
            self._follow(name)
            held = self._held.get(name)
            if held is None or held[0].untyped_storage()._cdata != key:
                return  # It was a copy, for another purpose.
            if info is not None and info.base == UNSCALES:
                self._unscaled.add(name)
            whole = covers(written, held[0])
            scaled = whole and info is not None and factor is not None and self.scalings.note(name, info, factor)
            if scaled or whole is None:
                self._await_write(name, held[0])
            else:
                self._keep(name)
                if self._changes.written(name, written, info, factor):
                    self._changes.follow(name)

        key = gradient.untyped_storage()._cdata
        await_write(self._recorder, gradient, about_to_write)

    def await_copies(self, info: OperatorInfo, args: Any, values: list[Any], out: Any) -> None:
        """Something was scaled out of place: gradients, maybe, whose copies may take their place."""
        if self._handed is not None and not self._recorder.sites.optimizer:
            read = {id(each) for each in (args[0] if isinstance(args[0], (list, tuple)) else args[:1])}
            for parameter, name in self._taps.names.items():
                if id(parameter.grad) in read:
                    self._find_given(parameter, name)
        for name, copy in self.scalings.copied(info, args, values, out):
            self._await_write(name, copy)

    def others_written(self, written: torch.Tensor, info: OperatorInfo | None, factor: Any) -> None:
        """Something is about to be scaled that is no gradient that backward left: it may be one that was collected, or
        changed."""
        if self._changes.find(written, info, factor):
            return self._recorder.announce_write(written, info, factor)
        if info is None or (factor is None and info.base != UNSCALES):
            return
        if _OTHERS not in self._recorder.before_write or self._recorder.sites.optimizer:
            return
        now = (len(self._recorder.records), self._recorder.storages.last_value)
        if now == self._scanned:
            return  # The same operation writes several.
        self._scanned = now
        for parameter, name in self._taps.names.items():
            self._find_given(parameter, name)
        self._recorder.announce_write(written, info, factor)

    def _find_given(self, parameter: torch.Tensor, name: str) -> None:
        """Holds what the program collected, or was handed, where it lies for the optimizer."""
        if name in self._given or parameter.grad is None or parameter.grad.layout is not torch.strided:
            return
        if self.collected.several(name):
            self._replace(name, parameter)
        elif self._handed is not None and not self.collected.left_any(name) and self._is_given(parameter.grad):
            self._hold_given(name, parameter, self._handed)
        if name in self._given:
            self._await_write(name, self._held[name][0])

    def _follow(self, name: str) -> None:
        """Holds in place of a gradient the scaled copy that the program put there."""
        parameter = self._owners.get(name)
        now = None if parameter is None or parameter.grad is None else _view(parameter.grad)
        if now is not None and name in self._held and self.scalings.takes(name, now):
            self._held[name] = (now, self._held[name][1])
            self._changes.moved(name, now)

    def _keep(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            self._kept[name] = self._taps.observe(*held), self.scalings.number(name)

    def _replace(self, name: str, parameter: torch.Tensor) -> int:
        """Holds what the program collected in place of what the last backward left. Returns what it is."""
        gradient = parameter.grad
        if name in self._given or gradient is None or gradient.layout is not torch.strided:
            return LEFT
        now = self._value(local(gradient))
        if not now or (name in self._held and now == self._value(self._held[name][0])):
            return LEFT
        kind, weighted = self.collected.of(name, now)
        if kind != LEFT and (weighted and self.weight != 1):
            kind = OTHER  # Whether its weights undo the loss's scale is not known.
        if kind == OTHER or (kind != LEFT and weighted):
            self.loss_scaled = True
        if kind not in (LEFT, OTHER):
            self._hold_given(name, parameter, self.weight)
        return kind

    def _hold_given(self, name: str, parameter: torch.Tensor, weight: float) -> None:
        self._forget(name)
        gradient = _view(parameter.grad)  # type: ignore[arg-type]
        self._taps.note_part(f"grad:{name}", parameter.grad, parameter)  # type: ignore[arg-type]
        self._held[name], self._owners[name] = (gradient, weight), parameter
        self._changes.left(name, gradient, self._value(gradient), weight)
        self._given.add(name)
        self.scalings.hold(name, gradient)

    def _is_given(self, gradient: torch.Tensor | None) -> bool:
        """Whether a gradient was computed in this step."""
        if gradient is None or gradient.layout is not torch.strided:
            return False
        entry = self._recorder.storages.entry(local(gradient))
        return entry is not None and not entry.leaf and bool(entry.value)

    # What optimizers take.

    def taken(self, names: Iterable[tuple[torch.Tensor, str]]) -> None:
        """An optimizer is about to take the gradients of these parameters."""
        for parameter, name in names:
            if name in self._unreduced and self.collected.several(name) and self._is_given(parameter.grad):
                # Reduced where it was collected, not where the last backward left a part of it.
                self._unreduced[name] = (local(parameter.grad), self._unreduced[name][1])  # type: ignore[arg-type]
            self._take(name)
            self._take_given(parameter, name)
        if not self._held:
            self._recorder.before_write.clear()
        for name, held in self._unreduced.items():
            self._taps.put(f"step_grad:{name}", self._taps.observe(*held))
            self._took = True
        self._unreduced.clear()

    def _take(self, name: str) -> None:
        self._follow(name)
        self._unscaled.discard(name)
        last = False
        if name in self._held or name in self._kept:
            self._took = self._took_left = True
            parameter = self._owners[name]
            if self._replace(name, parameter) == OTHER:
                self._take_other(name, parameter)
            else:
                last = name not in self._given and self.collected.apart(name)
                self._tap(name, taken=True)
        self.collected.used(name, last)

    def _take_other(self, name: str, parameter: torch.Tensor) -> None:
        """What is given is made of several gradients, and nobody knows of which that another program has: it has a name
        of its own."""
        self._forget(name)
        self._others = True
        gradient = parameter.grad
        self._rounds[name] = self._rounds.get(name, -1) + 1
        if gradient is not None and self.weight == 1:
            self._taps.put(f"step_grad:{name}", self._taps.observe(local(gradient), 1.0))

    def _tap(self, name: str, prefix: str = "grad", taken: bool = False) -> None:
        """Taps a gradient: "grad:NAME", and "grad:NAME#1" that of another backward, after the first was used. Where the
        program scaled it, "unscaled:grad:NAME" too, and where it changed it otherwise, "given:NAME"."""
        held, kept, factor = self._held.pop(name, None), self._kept.pop(name, None), self.scalings.number(name)
        if held is not None:
            kept = self._taps.observe(*held), factor
        if kept is None:
            return
        self._given.discard(name)
        changed = self._changes.take(name, self._owners[name], last=not taken)
        tap, given = self._next_name(name, prefix), self._next_name(name, "given")
        self._rounds[name] = self._rounds.get(name, -1) + 1
        (window, weight, payload), before = kept
        if factor is not None and before is not None:
            weight *= factor / before
        if not self._taps.put(tap, (window, weight, payload), f"grad:{name}"):
            return
        self._tapped.add(tap)
        unscaled = None if factor is None or factor == 1 else (window, weight / factor, payload)
        for other, reading in ((given, changed), (f"unscaled:{tap}", unscaled)):
            if reading is not None and prefix == "grad" and self._taps.put(other, reading, f"grad:{name}"):
                self._tapped.add(other)

    def _next_name(self, name: str, prefix: str = "grad") -> str:
        count = self._rounds.get(name, -1) + 1
        return f"{prefix}:{name}#{count}" if count else f"{prefix}:{name}"

    def _take_given(self, parameter: torch.Tensor, name: str) -> None:
        """Taps a gradient that an optimizer is given and no backward left: by differences, samples, transforms."""
        gradient, tap = parameter.grad, f"grad:{name}"
        if name in self._rounds or name in self._unreduced or self._taps.has(f"step_{tap}"):
            return
        if gradient is None or not self._is_given(gradient):
            return
        self._took = self._took_given = True
        self._taps.note_part(tap, gradient, parameter)
        if self._taps.put(tap, self._taps.observe(local(gradient), 1.0)):
            self._tapped.add(tap)

    def finish(self, asked: Callable[[str], bool], fate: Callable[[torch.Tensor, str], str]) -> None:
        """The step ends. `asked`: whether the user names a tap; `fate`: what becomes of a parameter's gradients."""
        for name in [*self._held, *self._kept]:
            self._follow(name)
            parameter = self._owners[name]
            if not self._took or name in self._unscaled or asked(self._next_name(name)):
                self._end(name, parameter)
            elif name not in self._rounds:
                # Left over: what no optimizer took says nothing of the training, beside what they did take.
                kind = fate(parameter, name)
                if kind == "written":
                    self._end(name, parameter)
                elif kind == "untrained":
                    self._tap(name, "unused_grad")
        self.taken(())
        if self._took_given and not self._took_left:
            self.loss_scaled = True  # As of copies of the module, whose gradients are averaged.
        if self._others:  # The others beside them would miss what was named otherwise.
            self._taps.drop(tap for tap in self._tapped if not asked(tap))

    def _end(self, name: str, parameter: torch.Tensor) -> None:
        """Nobody was seen to take it."""
        kind = self._replace(name, parameter) if self.collected.several(name) else LEFT
        if kind == OTHER:
            return self._take_other(name, parameter)
        if name not in self._given and self.collected.apart(name):
            self._others = self.loss_scaled = True  # Collected where no gradients lie, and taken from there.
            return self._forget(name)
        self._tap(name)

    def reduced_by_hand(self, tensors: list[torch.Tensor]) -> None:
        """Backward's gradients are one rank's alone, if they are reduced after it: what the optimizer is given is the
        result, tapped under another name, since it may have been clipped as well."""
        if self.in_backward or not self._held:
            return
        storages = {grad.untyped_storage()._cdata for grad, _ in self._held.values()}
        if all(t.numel() == 1 and t.untyped_storage()._cdata not in storages for t in tensors):
            return  # A norm, or a loss to be shown.
        self._recorder.before_write.clear()
        self._unreduced.update(self._held)
        self._held.clear()


def _view(gradient: torch.Tensor) -> torch.Tensor:
    """Of where a gradient lies, and stays when the program gives it another place (`p.grad.data = other`)."""
    return local(gradient).detach()
