"""Lets the recorder see a part of a step: the operations of some modules, forward and backward.

The dispatch mode is entered and left where modules of the part begin and end, by hooks on these modules alone; what
runs elsewhere meets no code of ours. In backward the engine restores the thread's state for each node, so a hook before
a node of the part enters the mode, for the time of that node. Nodes of the part are known by their numbers: autograd
counts in order of creation, and executes a thread's nodes in descending order, so that nothing lies between two nodes
of one stretch but nodes of that stretch.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

from .capture import Recorder
from .plan import CaptureFailed
from .scope import Part
from .taps import VALUE, Taps

_running_node = torch._C._current_autograd_node


class Gate:
    """Opens and closes a recorder's view. The step begins and ends in view, outside of all modules."""

    def __init__(self, recorder: Recorder, taps: Taps, part: Part) -> None:
        self.part = part
        self.ran: set[str] = set()  # Modules of the part that ran in view.
        self._recorder = recorder
        self._storages = recorder.storages
        self._taps = taps
        self._callers: list[tuple[bool, bool]] = []  # For each followed module that runs: what it was called in.
        self._where = "step"  # Names the present stretch.
        self._names: dict[int, str] = {}  # Of stretches, by their first number.
        self._leaving: dict[Any, list[tuple[int, str]]] = {}  # By autograd node: its outputs that left the part.
        self._accumulators: dict[int, Any] = {}  # Hooked nodes of parameters.
        self._begun = 0  # Number of the next autograd node when the present stretch began.
        self._starts: list[int] = []  # Stretches of numbers in view.
        self._ends: list[int] = []
        self._stretch = -1  # That backward is in.
        self._counts: dict[str, int] = {}
        self._handles: list[Any] = []
        self._closed = False

    def install(self) -> None:
        part = self.part
        self._storages.place = self._place
        self._begun = torch.autograd._get_sequence_nr()
        followed = {module for module, name in part.names.items() if name in part.chosen}
        followed |= {child for module in followed for child in _called_children(module) if child in part.names}
        for module in followed:
            self._follow(module, part.names[module], part.names[module] in part.chosen)
        for parameter in part.parameters:
            if parameter.is_leaf and parameter.requires_grad:
                hook = self._guarded(self._gradient)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def uninstall(self) -> None:
        self._closed = True
        self._leaving.clear()
        self._accumulators.clear()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # Forward.

    def _follow(self, module: torch.nn.Module, name: str, chosen: bool) -> None:
        before = self._guarded(functools.partial(self._enters, name, chosen))
        after = self._guarded(functools.partial(self._leaves, name, chosen))
        self._handles.append(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True))
        self._handles.append(module.register_forward_hook(after, with_kwargs=True, always_call=True))

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        def guarded(*args: Any) -> None:
            if self._closed or self._recorder.failure is not None:
                return
            try:
                with torch._C._DisableTorchDispatch(), self._recorder.lock:
                    function(*args)
            except Exception as error:
                self._recorder.guard(error)

        return guarded

    def _enters(self, name: str, chosen: bool, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        on = self._on()
        # Recomputed in backward: nodes of its own, even where the node that runs is in view.
        again = chosen and on and not self._callers and _running_node() is not None
        self._callers.append((on, again))
        if chosen:
            self.ran.add(name)
        if again:
            self._begun = torch.autograd._get_sequence_nr()
        elif chosen and not on:
            self._begin(name, (args, kwargs), name)
        elif on and not chosen:
            self._end(name, (args, kwargs))

    def _leaves(self, name: str, chosen: bool, module: torch.nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        on, again = self._callers.pop()
        if again:
            self._end_stretch()
        elif chosen and not on:
            self._end(name, out)
        elif on and not chosen:
            self._begin(name, out, f"{name}:out")

    def _begin(self, name: str, values: Any, where: str) -> None:
        """What follows is in view. Gradients of the values that come in leave the part in backward."""
        self._begin_stretch(where if _running_node() is None else f"{where}:again")
        self._push()
        tensors = _tensors(values)
        for position, tensor in enumerate(tensors):
            self._storages.expect(tensor, f"observed:{self._where}:in{position}")
        if _running_node() is None:
            for tensor in tensors:
                if tensor.requires_grad and tensor.grad_fn is not None:
                    number = self._count(f"gradin:{name}")
                    tensor.register_hook(self._guarded(functools.partial(self._gradient_leaves, number)))

    def _end(self, name: str, values: Any) -> None:
        """What follows is out of view. The values that go out are judged."""
        self._storages.keep_computed()
        tensors = _tensors(values)
        if not self._storages.epoch:
            self._storages.meet_data(tensors)
        for position, tensor in enumerate(tensors):
            if tensor.grad_fn is not None:
                place = (tensor.output_nr, f"observed:{name}:gradient{position}")
                self._leaving.setdefault(tensor.grad_fn, []).append(place)
        if _running_node() is None:
            for tensor in tensors:
                if tensor.is_floating_point() and self._storages.known(tensor) is not None:
                    self._taps.add(self._count(f"out:{name}"), VALUE, [(tensor, 1.0)])
        self._end_stretch()
        self._pop()

    def _begin_stretch(self, where: str) -> None:
        self._where = self._count(where)
        self._begun = torch.autograd._get_sequence_nr()
        self._storages.begin_epoch()
        self._storages.check_versions = False

    def _end_stretch(self) -> None:
        number = torch.autograd._get_sequence_nr()
        if number > self._begun:
            self._names[self._begun] = self._where
            self._starts.append(self._begun)
            self._ends.append(number)

    # Backward.

    def backward_begins(self, roots: Iterable[Any]) -> bool:
        """The engine is about to run. Returns what backward_ended is to be told: whether the mode was on."""
        was_on = self._on()
        if self._closed or self._recorder.failure is not None:
            return was_on
        self._stretch = -1
        if was_on and _running_node() is None:
            self._end_stretch()
            self._stretch = self._begun  # Its nodes come first: what it computed is as it was.
        elif was_on:
            self._storages.keep_computed()
        if was_on:
            self._pop()
        self._hook_nodes([root.grad_fn for root in roots if isinstance(root, torch.Tensor)])
        return was_on

    def backward_ended(self, was_on: bool) -> None:
        if was_on and not self._closed and self._recorder.failure is None:
            if _running_node() is None:
                self._begin_stretch("step")
            else:
                self._storages.begin_epoch()
            self._push()

    def reopen(self) -> None:
        """The step ends, perhaps by an exception out of view."""
        if self._recorder not in _get_current_dispatch_mode_stack():
            _push_mode(self._recorder)

    def _hook_nodes(self, roots: list[Any]) -> None:
        order = sorted(range(len(self._starts)), key=self._starts.__getitem__)
        starts = [self._starts[i] for i in order]
        ends = [self._ends[i] for i in order]
        audited = {id(parameter) for parameter in self.part.parameters}
        visited = set()
        waiting = [node for node in roots if node is not None]
        while waiting:
            node = waiting.pop()
            if node in visited:
                continue
            visited.add(node)
            waiting.extend(after for after, _ in node.next_functions if after is not None)
            parameter = getattr(node, "variable", None)
            if parameter is not None:
                if id(parameter) in audited and self._accumulators.get(id(parameter)) is not node:
                    self._accumulators[id(parameter)] = node
                    runs = functools.partial(self._node_runs, None, ())
                    self._handles.append(node.register_prehook(self._guarded(runs)))
                continue
            stretch = bisect.bisect_right(starts, node._sequence_nr()) - 1
            if stretch >= 0 and node._sequence_nr() < ends[stretch]:
                runs = functools.partial(self._node_runs, starts[stretch], self._leaving.get(node, ()))
                self._handles.append(node.register_prehook(self._guarded(runs)))

    def _node_runs(self, stretch: int | None, leaving: Iterable[tuple[int, str]], gradients: Any) -> None:
        if stretch is not None and stretch != self._stretch:
            self._stretch = stretch
            self._storages.begin_epoch()
        if stretch is not None:
            self._where = f"{self._names[stretch]}:backward"
        self._storages.check_versions = True
        self._push()
        for number, name in leaving:
            if gradients[number] is not None:
                self._storages.expect(gradients[number], self._count(name))

    def _gradient(self, parameter: torch.Tensor) -> None:
        """A gradient of the part is there: a tap, unless a later backward adds to it."""
        gradient = parameter.grad
        name = self._taps.names.get(parameter)
        if gradient is None or name is None:
            return
        entry = self._storages.known(gradient)
        if entry is None:
            self._taps.arrived.pop(name, None)
            return
        content = self._recorder.arena.copy_tensor(gradient)
        if gradient.is_contiguous() and len(content) == gradient.untyped_storage().nbytes():
            entry.content = content
        window = (entry.value, entry.dtype, gradient.shape, gradient.stride(), gradient.storage_offset())
        self._taps.arrived[name] = (window, content)

    def _gradient_leaves(self, name: str, gradient: torch.Tensor) -> None:
        if self._storages.known(gradient) is not None:
            self._taps.add(name, VALUE, [(gradient, self._taps.gradient_weight())])

    # The mode.

    def _on(self) -> bool:
        return _get_current_dispatch_mode() is self._recorder

    def _push(self) -> None:
        if not self._on():
            self._alone()
            _push_mode(self._recorder)

    def _pop(self) -> None:
        if self._on():
            _pop_mode()
        self._alone()

    def _alone(self) -> None:
        if self._recorder in _get_current_dispatch_mode_stack():
            raise CaptureFailed("dispatch_mode", "another dispatch mode was entered in the step, which has a scope")

    def _place(self) -> str:
        return self._count(f"observed:{self._where}")

    def _count(self, name: str) -> str:
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        return f"{name}#{number}"


def _called_children(module: torch.nn.Module) -> Iterable[torch.nn.Module]:
    """The modules inside that may be called by it: children, and those of children that are containers."""
    for child in module.children():
        if isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            yield from _called_children(child)
        else:
            yield child


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]
