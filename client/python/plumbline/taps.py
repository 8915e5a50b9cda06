"""The results of a step that are judged: loss, gradients, updates, optimizer state, and what the user names."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from .capture import Recorder
from .errors import PlumblineError
from .gradients import Gradients, Term
from .payload import Content
from .plan import CaptureFailed
from .scalings import Factor
from .schema import DTYPES
from .shards import Part, local, named, part_of
from .storages import Storage, Window, described, modelled, wrote

LOSS, GRADIENT, UPDATE, STATE_TAP, VALUE, CARRIED = 1, 2, 3, 4, 5, 6

# A tensor, the storage that it had when the step began, and its sizes, strides and offset in that.
Watched = tuple[torch.Tensor, Storage, tuple[Any, Any, int]]
Guard = tuple[float | None, float | None]  # Minimum and maximum; None: none.


def checked_guard(name: str, minimum: float | None, maximum: float | None) -> Guard:
    """A guard, or PlumblineError where it can hold for no value or for all."""
    guard = tuple(None if limit is None else float(limit) for limit in (minimum, maximum))
    if all(limit is None for limit in guard):
        raise PlumblineError(f"guard of {name!r}: expected a minimum or a maximum, found neither")
    for limit in guard:
        if limit is not None and not math.isfinite(limit):
            raise PlumblineError(f"guard of {name!r}: expected a finite number or None, found {limit}")
    if None not in guard and minimum > maximum:  # type: ignore[operator]
        raise PlumblineError(f"guard of {name!r}: expected minimum <= maximum, found {minimum} > {maximum}")
    return guard  # type: ignore[return-value]


class Taps:
    """Collects a step's taps. `retire` is called where a failed capture may leave the dispatch mode early."""

    def __init__(self, recorder: Recorder, retire: Callable[[], None], guards: Mapping[str, Guard]) -> None:
        self._recorder = recorder
        self._retire = retire
        self._guards = guards
        self.names: dict[torch.Tensor, str] = {}  # Parameter -> its name in the model.
        self._taps: dict[str, tuple[int, list[Term]]] = {}
        self._parts: dict[str, Part] = {}  # By tap: of what the ranks hold in parts.
        self._references: dict[str, torch.Tensor | float] = {}
        self._loss: list[tuple[torch.Tensor, Term]] = []  # The roots of backward, with their content.
        self._unscaled_loss: list[Term] = []  # As they are where gradients were scaled since.
        self._loss_by_user = False
        self._loss_unclear = False  # The roots of backward are not the loss, or not all of it.
        self._gradients = Gradients(recorder, self)
        # What a partial step audits (see gate.py), and gradients as they arrived, with their content.
        self.gate: Any = None
        self.arrived: dict[str, tuple[Window, Content]] = {}
        self._watched: dict[tuple[int, str], Watched] = {}
        self.origins: dict[str, Window] = {}  # By tap: what a parameter was, where that is no window of its storage.
        self._optimizers: list[Any] = []
        self._left: dict[str, tuple[int, list[Term]]] = {}
        self._scaled = WeakTensorKeyDictionary()  # What a gradient scaler made of a loss, and its scale.
        self._undo: list[Callable[[], None]] = []

    def add(self, name: str, kind: int, tensors: list[tuple[torch.Tensor, float]]) -> None:
        """Adds a tap; the first of a name stays."""
        if name == "loss":
            kind, self._loss_by_user = LOSS, True
        elif name.startswith(("grad:", "given:")):
            kind = GRADIENT
        elif name.startswith("update:"):
            kind = UPDATE
        name = named(name, tensors[0][0])
        if name in self._taps:
            return
        with self._recorder.lock:
            terms = [(*self._observe(local(tensor), weight),) for tensor, weight in tensors]
            self.note_part(name, tensors[0][0])
        self._taps[name] = (kind, terms)

    def reference(self, values: Mapping[str, torch.Tensor | float]) -> None:
        """Keeps bare reference values until the step ends."""
        if not isinstance(values, Mapping):
            message = f"reference: expected a dict of values by name, found {values!r}"
            raise CaptureFailed("unmodelled_tap", message[:200])
        for name, value in values.items():
            if not isinstance(value, (torch.Tensor, Real)):
                message = f"reference of {name!r}: expected a tensor or a number, found {value!r}"
                raise CaptureFailed("unmodelled_tap", message[:200])
            if isinstance(value, torch.Tensor) and value.dtype not in DTYPES:
                raise CaptureFailed("unmodelled_tap", f"reference of {name!r} has dtype {value.dtype}")
            self._references[name] = value

    def watch(self, kind: int, name: str, tensor: torch.Tensor) -> None:
        """Judges what the step makes of a named tensor, whoever writes it: parameters, buffers, state."""
        held = described(local(tensor))
        entry = self._recorder.storages.adopt(held)
        self._watched.setdefault((kind, name), (tensor, entry, (held.shape, held.stride(), held.storage_offset())))

    def watch_instead(self, kind: int, name: str, tensor: torch.Tensor) -> None:
        """The holder of a watched tensor holds this one now."""
        watched = self._watched.get((kind, name))
        if watched is not None and watched[0] is not tensor and modelled(described(local(tensor))):
            self._watched[kind, name] = (tensor, *watched[1:])

    def finish(self) -> None:
        """Emits all taps of the step. Raises CaptureFailed for a reference or a guard that has no tap."""
        recorder = self._recorder
        self._gradients.finish(self._asked, self._fate)
        if self.gate is None:
            self._take_left()
            self._take_carried()
        for name, left in self._left.items():
            self._taps.setdefault(name, left)
        for name, (window, content) in self.arrived.items():
            payload = recorder.storages.payload(content) if len(content) else 0
            self._taps.setdefault(f"grad:{name}", (GRADIENT, [(window, self._gradients.weight, payload)]))
        if self._loss and not self._loss_by_user and (self._asked("loss") or not self._loss_is_unclear()):
            self._scale_loss()
            self._taps["loss"] = (LOSS, [term for _, term in self._loss])
            if self._taps["loss"][1] != self._unscaled_loss:
                self._taps.setdefault("unscaled:loss", (LOSS, self._unscaled_loss))
        self._drop_unscaled()
        for what, names in (("reference for", self._references), ("guard on", self._guards)):
            for name in names:
                if name not in self._taps:
                    known = ", ".join(sorted(self._taps)[:8]) or "none"
                    raise CaptureFailed("unknown_tap", f"{what} {name!r}, which is no tap of the step: {known}")
        for name, value in self._references.items():
            _, code, sizes, _, _ = self._taps[name][1][0][0]
            if not isinstance(value, torch.Tensor):
                value = self._references[name] = _number_tensor(value, code)
            if tuple(value.shape) != tuple(sizes):
                raise CaptureFailed(
                    "unknown_tap",
                    f"reference for {name!r} has shape {list(value.shape)}, expected {list(sizes)}",
                )
        for name, (kind, terms) in self._taps.items():
            value = self._references.get(name)
            payload = dtype = 0
            if value is not None:
                payload = recorder.storages.payload(recorder.arena.copy_tensor(value))
                dtype = DTYPES[value.dtype]
            recorder.records.append(
                (
                    *("tap", name, kind, terms, payload, dtype, 0.0),
                    *(self._guards.get(name, (None, None)), self._parts.get(name)),
                )
            )

    def _drop_unscaled(self) -> None:
        """Where no update tells what gradients were scaled by, they are read as scaled alone."""
        for tap in [name for name in self._taps if name.startswith("unscaled:grad:")]:
            name = tap.removeprefix("unscaled:grad:").partition("#")[0]
            if not {f"update:{name}", f"param:{name}"} & self._taps.keys():
                del self._taps[tap]

    def install(self, optimizers: Iterable[Any]) -> None:
        """Follows backward, the gradient scaler and the optimizers until `uninstall`."""
        self._recorder.on_reduction = self._gradients.reduced_by_hand
        self._recorder.on_copies = self._gradients.await_copies
        self._recorder.before_others = self._gradients.others_written
        self._follow_backward()
        self._follow_scaler()
        for optimizer in optimizers:
            self._optimizers.append(optimizer)
            self._follow_optimizer(optimizer)

    def follow_modules(self, patterns: Iterable[str], path_of: Callable[[torch.nn.Module], str | None]) -> None:
        """Taps what the modules give whose path matches one of the patterns, as "out:PATH", until `uninstall`."""
        matches = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)).match
        calls: dict[str, int] = {}

        def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
            path = path_of(module)
            # Recomputation under activation checkpointing is no call of the program's.
            if not path or not matches(path) or torch._C._current_autograd_node() is not None:
                return
            count = calls[path] = calls.get(path, 0) + 1
            name = f"out:{path}" if count == 1 else f"out:{path}#{count - 1}"
            for part, tensor in _parts(output):
                if tensor.is_floating_point():
                    self._guarded(self.add, name + part, VALUE, [(tensor, 1.0)])

        self._undo.append(torch.nn.modules.module.register_module_forward_hook(hook).remove)

    def uninstall(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._recorder.on_reduction = self._recorder.on_copies = self._recorder.before_others = None
        self._gradients.clear()
        self._watched.clear()
        self._left.clear()
        self._references.clear()
        self._optimizers.clear()
        self.names.clear()

    def put(self, name: str, term: Term, like: str = "") -> bool:
        """Adds a gradient's tap unless there is one of the name. `like`: the name that its part was noted by."""
        if name in self._taps:
            return False
        self._taps[name] = (GRADIENT, [term])
        if like in self._parts:
            self._parts[name] = self._parts[like]
        return True

    def gradient_weight(self) -> float:
        return self._gradients.weight

    def has(self, name: str) -> bool:
        return name in self._taps

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._taps.pop(name, None)

    def observe(self, tensor: torch.Tensor, weight: float) -> Term:
        return self._observe(tensor, weight)

    def _asked(self, name: str) -> bool:
        """Whether the user has something to say of a tap."""
        return name in self._references or name in self._guards

    def _observe(self, tensor: torch.Tensor, weight: float) -> Term:
        window, payload = self._recorder.observe(described(tensor))
        return window, weight, payload

    def _guarded(self, function: Callable[..., None], *args: Any) -> None:
        """Runs our own code amid the training; its errors end the capture and go no further."""
        if self._recorder.failure is None:
            try:
                with torch._C._DisableTorchDispatch(), self._recorder.lock:
                    function(*args)
            except Exception as error:
                self._recorder.guard(error)
        self._retire()

    # Backward.

    def _follow_backward(self) -> None:
        # What backward() and grad() of torch.autograd both call, however they were imported.
        original = torch.autograd._engine_run_backward

        def run(roots: Any, grads: Any = (), *args: Any, **kwargs: Any) -> Any:
            inner = torch._C._current_autograd_node() is not None  # As reentrant checkpointing does.
            if inner:
                self._retire()
                return engine(roots, grads, *args, **kwargs)
            start, differentiable = len(self._recorder.records), len(args) > 1 and bool(args[1])
            if not kwargs.get("accumulate_grad", True):
                self._retire()
                try:
                    return engine(roots, grads, *args, **kwargs)
                finally:
                    self._guarded(self._asked_for, roots, start, differentiable, args[2] if len(args) > 2 else ())
            self._guarded(self._roots, roots, grads)
            self._gradients.in_backward = True
            try:
                return engine(roots, grads, *args, **kwargs)
            finally:
                self._gradients.in_backward = False
                self._guarded(self._backward_ended, start, differentiable)

        def engine(roots: Any, *args: Any, **kwargs: Any) -> Any:
            if self.gate is None:
                with self._recorder.hidden.around(roots):
                    return original(roots, *args, **kwargs)
            was_on = self.gate.backward_begins(roots)
            try:
                return original(roots, *args, **kwargs)
            finally:
                self.gate.backward_ended(was_on)

        def undo() -> None:
            torch.autograd._engine_run_backward = original

        torch.autograd._engine_run_backward = run
        if self.gate is None:
            self._recorder.hidden.enter()
        self._undo.append(undo)

    def _roots(self, roots: Any, grads: Any) -> None:
        self._scale_loss()
        for root, grad in zip(roots, grads, strict=False):
            if not isinstance(root, torch.Tensor) or root.numel() != 1 or root.is_complex():
                continue
            (value, code, _, _, offset), payload = self._recorder.observe(local(root))
            term: Term = ((value, code, (), (), offset), 1.0 / self._scale_of(root), payload)
            begun = local(root).detach().clone().reshape(()), term
            self._loss.append(begun if grad is None else self._weighed_root(*begun, local(grad).reshape(())))
            self._unscaled_loss.append(self._loss[-1][1])
        self._gradients.backward_begins(1.0 / self._scale_of(*roots[:1]))

    def _backward_ended(self, start: int, differentiable: bool) -> None:
        self._gradients.collected.ran(start, differentiable)
        if self.gate is None:
            self._gradients.backward_ended()
        else:
            self._mark_foreign()

    def _asked_for(self, roots: Any, start: int, differentiable: bool, inputs: Any) -> None:
        """Gradients were handed to the program. Where they are parameters', what they are of may be a part of the loss;
        or the program only looks at them."""
        self._gradients.collected.ran(start, differentiable)
        self._gradients.handed(1.0 / self._scale_of(*roots[:1]))
        if not differentiable:
            self._loss_unclear = self._loss_unclear or any(each in self.names for each in inputs)

    def _loss_is_unclear(self) -> bool:
        """Whether what backward began with says nothing of the loss: gradients were weighed afterwards, cleared, or
        taken without it, or it began with a surrogate, made of gradients to give others."""
        if self._loss_unclear or self._gradients.loss_scaled or self._gradients.collected.in_vain:
            return True
        return any(self._gradients.collected.reaches(term[0][0]) for _, term in self._loss)

    def _scale_loss(self) -> None:
        """Scales the loss as its gradients were since backward."""
        for factor in [] if self._loss_by_user else self._gradients.scalings.common():
            self._loss = [self._scaled_root(root, term, factor) for root, term in self._loss]

    def _weighed_root(self, root: torch.Tensor, term: Term, grad: torch.Tensor) -> tuple[torch.Tensor, Term]:
        """A root times the gradient that backward is given for it. Only a power of two is a weight that the program
        could not have rounded otherwise; and only it may be meant to take the loss beyond its format's range."""
        number = grad.item() if grad.device.type == "cpu" else 0.0
        if abs(math.frexp(number)[0]) == 0.5:
            return root, (term[0], term[1] * number, term[2])
        window = self._recorder.storages.read(grad)
        return self._scaled_root(root, term, Factor(False, window, grad.detach().clone(), self._recorder.site))

    def _scaled_root(self, root: torch.Tensor, term: Term, factor: Factor) -> tuple[torch.Tensor, Term]:
        window, weight, payload = term
        if factor.content is None:
            return root, (window, weight * factor.number, payload)
        operation = torch.ops.aten.div.Tensor if factor.divides else torch.ops.aten.mul.Tensor
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            scaled = operation(root, factor.content)
        info = self._recorder.plan.info(operation)
        self._recorder.emit(info, (factor.site, [window, factor.value], ""), [wrote(scaled)])
        return scaled, self._observe(scaled, weight)

    # Gradient scaler.

    def _follow_scaler(self) -> None:
        scaler = torch.amp.GradScaler
        original = scaler.scale

        def scale(this: Any, outputs: Any) -> Any:
            scaled = original(this, outputs)
            if isinstance(scaled, torch.Tensor) and this.is_enabled():
                self._guarded(self._note_scale, this, scaled)
            return scaled

        def undo() -> None:
            scaler.scale = original

        scaler.scale = scale
        self._undo.append(undo)

    def _note_scale(self, scaler: Any, scaled: torch.Tensor) -> None:
        self._scaled[scaled] = float(scaler.get_scale())

    def _scale_of(self, root: Any = None) -> float:
        """1 where no gradient scaler made it."""
        return self._scaled.get(root, 1.0) if isinstance(root, torch.Tensor) else 1.0

    # Optimizers.

    def _follow_optimizer(self, optimizer: Any) -> None:
        def before(_: Any, args: Any, kwargs: Any) -> Any:
            self._guarded(self._optimizer_starts, optimizer)
            apart = self._apart(optimizer, [*args, *kwargs.values()])
            return apart[: len(args)], dict(zip(kwargs, apart[len(args) :], strict=True))

        def after(*_: Any) -> None:
            self._guarded(self._optimizer_ends)

        if hasattr(optimizer, "register_step_pre_hook"):
            self._undo.append(optimizer.register_step_pre_hook(before).remove)
            self._undo.append(optimizer.register_step_post_hook(after).remove)
            return
        original = optimizer.step

        def step(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = before(optimizer, args, kwargs)
            result = original(*args, **kwargs)
            after()
            return result

        optimizer.step = step
        self._undo.append(lambda: delattr(optimizer, "step"))

    def _apart(self, optimizer: Any, arguments: Iterable[Any]) -> tuple[Any, ...]:
        """An optimizer's arguments, of which the closure runs forward and backward: these are not the optimizer's."""
        return tuple(self._aside(optimizer, value) if callable(value) else value for value in arguments)

    def _aside(self, optimizer: Any, closure: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate(*args: Any, **kwargs: Any) -> Any:
            self._recorder.sites.optimizer = False
            try:
                return closure(*args, **kwargs)
            finally:
                self._guarded(self._optimizer_starts, optimizer)

        return evaluate

    def _optimizer_starts(self, optimizer: Any) -> None:
        if self.gate is not None:
            self._mark_foreign()
        else:
            held = parameters_of(optimizer)
            names = self.names.items()
            self._gradients.taken(names if held is None else [(one, name) for one, name in names if id(one) in held])
        self._recorder.sites.optimizer = True

    def _optimizer_ends(self) -> None:
        self._recorder.sites.optimizer = False
        if self.gate is not None:
            self._take_left()  # What follows may be out of sight.

    def _mark_foreign(self) -> None:
        """Gradients of parameters that a partial step does not audit are left out with them."""
        for parameter in self.names:
            gradient = parameter.grad
            foreign = parameter not in self.gate.part.parameters
            if foreign and gradient is not None and gradient.layout is torch.strided:
                self._recorder.storages.adopt(local(gradient)).foreign = True

    def note_part(self, tap: str, tensor: torch.Tensor, parameter: torch.Tensor | None = None) -> None:
        part = part_of(tensor, parameter)
        if part is not None:
            self._parts[tap] = part

    def _fate(self, parameter: torch.Tensor, name: str) -> str:
        """What becomes of a parameter's gradient that no optimizer took though others took theirs."""
        watched = self._watched.get((UPDATE, f"update:{name}"))
        if watched is not None and not self._is_as_it_was(watched):
            return "written"
        return "left" if _holds(map(parameters_of, self._optimizers), parameter) else "untrained"

    # What the step leaves: parameters, buffers, state of optimizers and of the user, by whatever they were written.

    def _take_left(self) -> None:
        for (kind, name), watched in self._watched.items():
            self._take_watched(kind, name, watched)
        for optimizer in self._optimizers:
            self._take_state(optimizer)

    def _take_watched(self, kind: int, name: str, watched: Watched) -> None:
        """Takes a watched tensor unless it is as it was: of a parameter, what was added to it."""
        tensor, before, layout = watched
        held = described(local(tensor))
        entry = self._recorder.storages.entry(held)
        if before.foreign or self._is_as_it_was(watched):
            return
        new, payload = self._recorder.observe(held)
        if entry is before and entry.leaf and self.gate is not None:
            return  # Something unseen wrote it.
        terms = [(new, 1.0, payload)]
        if kind == UPDATE:
            origin, code = before.origin
            if name in self.origins:
                terms.append((self.origins[name], -1.0, 0))
            elif origin and code == modelled(held) and not before.laid:
                terms.append(((origin, code, *layout), -1.0, 0))
            else:  # Overwritten unread: what it was has no part in it.
                kind, name = STATE_TAP, "param:" + name.removeprefix("update:")
        self.note_part(name, tensor)
        self._left[name] = (kind, terms)

    def _is_as_it_was(self, watched: Watched) -> bool:
        tensor, before, _ = watched
        entry = self._recorder.storages.entry(described(local(tensor)))
        return entry is before and not entry.pending and entry.value in (0, before.origin[0])

    def _take_state(self, optimizer: Any) -> None:
        for parameter, state in optimizer.state.items():
            name = self.names.get(parameter) if isinstance(parameter, torch.Tensor) else None
            if self.gate is not None and parameter not in self.gate.part.parameters:
                continue
            # Not what lies deeper: LBFGS keeps a hundred old steps in lists.
            for tap, tensor in tensors_of(f"state:{name}", state, 1) if name is not None else ():
                entry = self._recorder.storages.entry(local(tensor)) if tensor.layout is torch.strided else None
                if entry is None or entry.value in (0, entry.origin[0]):
                    continue
                if not entry.leaf and not entry.foreign:
                    self.note_part(tap, tensor, parameter)
                    self._left[tap] = (STATE_TAP, [self._observe(local(tensor), 1.0)])

    def _take_carried(self) -> None:
        """Takes the gradients that lie where the next backward adds to them, and an optimizer may take them, without
        their content and a gradient scaler's scale. Of those that ranks share nothing is said."""
        recorder = self._recorder
        if not recorder.plan.carried or recorder.ranks > 1:
            return
        held = [parameters_of(optimizer) for optimizer in self._optimizers]
        for parameter, name in self.names.items():
            gradient = parameter.grad
            if gradient is None or local(gradient) is not gradient or part_of(gradient, parameter) is not None:
                continue
            if not _holds(held, parameter):
                continue
            entry = recorder.storages.entry(gradient) if modelled(gradient) else None
            if entry is not None and entry.value and not entry.pending and not entry.foreign:
                term = (recorder.window(gradient), self._gradients.weight, 0)
                self._left.setdefault(f"state:{name}.grad", (CARRIED, [term]))


def _holds(held: Iterable[set[int] | None], parameter: torch.Tensor) -> bool:
    """Whether one of the optimizers that step on these may step on the parameter."""
    return any(ids is None or id(parameter) in ids for ids in held)


def parameters_of(optimizer: Any) -> set[int] | None:
    """The ids of what an optimizer steps on; None: it does not tell."""
    groups = getattr(optimizer, "param_groups", None)
    return None if groups is None else {id(parameter) for group in groups for parameter in group["params"]}


def tensors_of(name: str, holder: Any, depth: int = 3) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a tensor, a module, or dicts and lists of them (so deep at most), by name."""
    if isinstance(holder, torch.Tensor):
        yield name, holder
    elif isinstance(holder, torch.nn.Module):
        for parts in (holder.named_parameters(), holder.named_buffers()):
            yield from ((f"{name}.{part}", tensor) for part, tensor in parts)
    elif isinstance(holder, (Mapping, list, tuple)) and depth > 0:
        for key, item in holder.items() if isinstance(holder, Mapping) else enumerate(holder):
            yield from tensors_of(f"{name}.{key}", item, depth - 1)


def _parts(output: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a module's output, and what is appended to its name for each."""
    if isinstance(output, torch.Tensor):
        yield "", output
    items = output.items() if isinstance(output, Mapping) else enumerate(output) if _is_sequence(output) else ()
    for key, value in items:
        if isinstance(value, torch.Tensor):
            yield f"[{key}]" if key else "", value


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _number_tensor(value: float, code: int) -> torch.Tensor:
    """A Python number as a tensor of the tap's dtype where that holds it exactly (it came from such a tensor)."""
    own = torch.tensor(value, dtype=next(dtype for dtype, known in DTYPES.items() if known == code), device="cpu")
    return own if own.item() == value else torch.tensor(value, dtype=torch.float64, device="cpu")
