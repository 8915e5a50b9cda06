"""The results of a step that are judged: loss, gradients, updates, optimizer state, and what the user names."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

import torch

from .capture import Recorder
from .errors import PlumblineError
from .payload import Content
from .plan import CaptureFailed
from .scalings import Factor, Scalings, covers
from .schema import DTYPES, OperatorInfo
from .shards import Part, local, named, part_of
from .storages import Storage, Window, described, modelled, wrote

LOSS, GRADIENT, UPDATE, STATE_TAP, VALUE = 1, 2, 3, 4, 5

Term = tuple[Window, float, int]
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
        self._loss_by_user = False
        self._grads: dict[str, tuple[torch.Tensor, float]] = {}
        self._owners: dict[str, torch.Tensor] = {}  # Their parameters.
        self._scalings = Scalings(recorder)
        # What a partial step audits (see gate.py), and gradients as they arrived, with their content.
        self.gate: Any = None
        self.arrived: dict[str, tuple[Window, Content]] = {}
        self._unreduced: dict[str, tuple[torch.Tensor, float]] = {}  # Of one rank, reduced by hand after backward.
        self._in_backward = False
        self._rounds: dict[str, int] = {}  # Gradients of a parameter that were tapped: one for each backward.
        self._watched: dict[tuple[int, str], Watched] = {}
        self.origins: dict[str, Window] = {}  # By tap: what a parameter was, where that is no window of its storage.
        self._optimizers: list[Any] = []
        self._left: dict[str, tuple[int, list[Term]]] = {}
        self._scaled: dict[int, float] = {}
        self._undo: list[Callable[[], None]] = []

    def add(self, name: str, kind: int, tensors: list[tuple[torch.Tensor, float]]) -> None:
        """Adds a tap; the first of a name stays."""
        if name == "loss":
            kind, self._loss_by_user = LOSS, True
        elif name.startswith("grad:"):
            kind = GRADIENT
        elif name.startswith("update:"):
            kind = UPDATE
        name = named(name, tensors[0][0])
        if name in self._taps:
            return
        with self._recorder.lock:
            terms = [(*self._observe(local(tensor), weight),) for tensor, weight in tensors]
            self._note_part(name, tensors[0][0])
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
        self._flush_gradients()
        if self.gate is None:
            self._take_left()
        for name, left in self._left.items():
            self._taps.setdefault(name, left)
        for name, (window, content) in self.arrived.items():
            payload = recorder.storages.payload(content) if len(content) else 0
            self._taps.setdefault(f"grad:{name}", (GRADIENT, [(window, self.gradient_weight, payload)]))
        if self._loss and not self._loss_by_user:
            self._scale_loss()
            self._taps["loss"] = (LOSS, [term for _, term in self._loss])
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

    def install(self, optimizers: Iterable[Any]) -> None:
        """Follows backward, the gradient scaler and the optimizers until `uninstall`."""
        self._recorder.on_reduction = self._reduced_by_hand
        self._recorder.on_copies = self._await_copies
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
        self._recorder.on_reduction = self._recorder.on_copies = None
        self._grads.clear()
        self._owners.clear()
        self._unreduced.clear()
        self._watched.clear()
        self._left.clear()
        self._references.clear()
        self._optimizers.clear()
        self.names.clear()

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
            if inner or not kwargs.get("accumulate_grad", True):
                self._retire()
                return engine(roots, grads, *args, **kwargs)
            self._guarded(self._roots, roots, grads)
            self._in_backward = True
            try:
                return engine(roots, grads, *args, **kwargs)
            finally:
                self._in_backward = False
                self._guarded(self._gradients)

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
            weight = 1.0 / self._scaled.get(id(root), 1.0)
            if grad is not None and grad.device.type == "cpu":
                weight *= grad.item()
            (value, code, _, _, offset), payload = self._recorder.observe(local(root))
            self._loss.append((local(root).detach().clone(), ((value, code, (), (), offset), weight, payload)))
        self.gradient_weight = 1.0 / self._scaled.pop(id(roots[0]), 1.0) if roots else 1.0
        self._recorder.before_write.clear()
        self._grads.clear()
        self._scalings.begin({})

    def _scale_loss(self) -> None:
        """Scales the loss as its gradients were since backward."""
        for factor in [] if self._loss_by_user else self._scalings.common():
            self._loss = [self._scaled_root(root, term, factor) for root, term in self._loss]

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

    gradient_weight = 1.0

    def _gradients(self) -> None:
        """Marks the gradients that this backward left. They are copied when they are about to be overwritten, when
        the optimizer starts, or when the step ends; held until then, and forgotten if another backward starts."""
        if self.gate is not None:
            return self._mark_foreign()
        for parameter, name in self.names.items():
            if parameter.grad is None or parameter.grad.layout is not torch.strided:
                continue
            grad = local(parameter.grad)
            entry = self._recorder.storages.entry(grad)
            if entry is None or entry.leaf or not (entry.value or entry.pending):
                continue
            for kind in ("grad", "step_grad"):
                self._note_part(f"{kind}:{name}", parameter.grad, parameter)
            self._grads[name], self._owners[name] = (grad, self.gradient_weight), parameter
            self._await_write(name, grad)
        self._scalings.begin({name: grad for name, (grad, _) in self._grads.items()})

    def _await_write(self, name: str, gradient: torch.Tensor) -> None:
        def about_to_write(written: torch.Tensor, info: OperatorInfo | None, factor: Any) -> None:
            self._follow_gradient(name)
            held = self._grads.get(name)
            if held is None or held[0].untyped_storage()._cdata != key:
                return  # It was a copy, for another purpose.
            whole = covers(written, held[0])
            scaled = whole and info is not None and factor is not None and self._scalings.note(name, info, factor)
            if scaled or whole is None:
                self._await_write(name, held[0])
            else:
                self._flush_gradient(name)

        key = gradient.untyped_storage()._cdata
        waiting = self._recorder.before_write
        waiting[key] = _chain(waiting.get(key), about_to_write)

    def _await_copies(self, info: OperatorInfo, args: Any, values: list[Any], out: Any) -> None:
        for name, copy in self._scalings.copied(info, args, values, out):
            self._await_write(name, copy)

    def _follow_gradient(self, name: str) -> None:
        """Holds in place of a gradient the scaled copy that the program put there."""
        parameter = self._owners.get(name)
        now = None if parameter is None or parameter.grad is None else local(parameter.grad)
        if now is not None and name in self._grads and self._scalings.takes(name, now):
            self._grads[name] = (now, self._grads[name][1])

    def _note_part(self, tap: str, tensor: torch.Tensor, parameter: torch.Tensor | None = None) -> None:
        part = part_of(tensor, parameter)
        if part is not None:
            self._parts[tap] = part

    def _mark_foreign(self) -> None:
        """Gradients of parameters that a partial step does not audit are left out with them."""
        for parameter in self.names:
            gradient = parameter.grad
            foreign = parameter not in self.gate.part.parameters
            if foreign and gradient is not None and gradient.layout is torch.strided:
                self._recorder.storages.adopt(local(gradient)).foreign = True

    def _flush_gradient(self, name: str) -> None:
        """Taps a gradient: "grad:NAME", and "grad:NAME#1" that of another backward, after the first was used."""
        held = self._grads.pop(name, None)
        if held is not None:
            count = self._rounds[name] = self._rounds.get(name, -1) + 1
            tap = f"grad:{name}#{count}" if count else f"grad:{name}"
            if tap not in self._taps:
                self._taps[tap] = (GRADIENT, [self._observe(*held)])
                if f"grad:{name}" in self._parts:
                    self._parts[tap] = self._parts[f"grad:{name}"]

    def _flush_gradients(self) -> None:
        self._recorder.before_write.clear()
        for name in list(self._grads):
            self._follow_gradient(name)
            self._flush_gradient(name)
        for name, held in self._unreduced.items():
            self._taps.setdefault(f"step_grad:{name}", (GRADIENT, [self._observe(*held)]))
        self._unreduced.clear()

    def _take_gradients(self) -> None:
        """Taps the gradients that an optimizer is given and no backward left: by differences, samples, transforms."""
        for parameter, name in self.names.items():
            gradient = parameter.grad
            if name in self._rounds or gradient is None or gradient.layout is not torch.strided:
                continue
            held = local(gradient)
            entry = self._recorder.storages.entry(held)
            tap = f"grad:{name}"
            if entry is None or entry.leaf or not entry.value or f"step_{tap}" in self._taps or tap in self._taps:
                continue
            self._note_part(tap, gradient, parameter)
            self._taps[tap] = (GRADIENT, [self._observe(held, 1.0)])

    def _reduced_by_hand(self, tensors: list[torch.Tensor]) -> None:
        """Backward's gradients are one rank's alone, if they are reduced after it: what the optimizer is given is the
        result, tapped under another name, since it may have been clipped as well."""
        if self._in_backward or not self._grads:
            return
        storages = {grad.untyped_storage()._cdata for grad, _ in self._grads.values()}
        if all(t.numel() == 1 and t.untyped_storage()._cdata not in storages for t in tensors):
            return  # A norm, or a loss to be shown.
        self._recorder.before_write.clear()
        for name, (grad, weight) in self._grads.items():
            self._unreduced[name] = (grad, weight)
        self._grads.clear()

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
        self._scaled[id(scaled)] = float(scaler.get_scale())

    # Optimizers.

    def _follow_optimizer(self, optimizer: Any) -> None:
        def before(_: Any, args: Any, kwargs: Any) -> Any:
            self._guarded(self._optimizer_starts)
            return self._apart(args), {key: self._apart([value])[0] for key, value in kwargs.items()}

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

    def _apart(self, arguments: Iterable[Any]) -> tuple[Any, ...]:
        """An optimizer's arguments, of which the closure runs forward and backward: these are not the optimizer's."""
        return tuple(self._aside(value) if callable(value) else value for value in arguments)

    def _aside(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate(*args: Any, **kwargs: Any) -> Any:
            self._recorder.sites.optimizer = False
            try:
                return closure(*args, **kwargs)
            finally:
                self._guarded(self._optimizer_starts)

        return evaluate

    def _optimizer_starts(self) -> None:
        self._flush_gradients()
        if self.gate is not None:
            self._mark_foreign()
        else:
            self._take_gradients()
        self._recorder.sites.optimizer = True

    def _optimizer_ends(self) -> None:
        self._recorder.sites.optimizer = False
        if self.gate is not None:
            self._take_left()  # What follows may be out of sight.

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
        if before.foreign or (entry is before and not entry.pending and entry.value in (0, before.origin[0])):
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
        self._note_part(name, tensor)
        self._left[name] = (kind, terms)

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
                    self._note_part(tap, tensor, parameter)
                    self._left[tap] = (STATE_TAP, [self._observe(local(tensor), 1.0)])


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


def _chain(first: Callable[..., None] | None, second: Callable[..., None]) -> Callable[..., None]:
    if first is None:
        return second

    def both(*write: Any) -> None:
        first(*write)
        second(*write)

    return both
