"""One captured step: enters the recorder, follows modules, backward and optimizers, collects taps, and undoes it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode, _get_current_dispatch_mode_stack, _push_mode

from .assembled import Named, assemble, assemble_laid
from .callbacks import Callbacks
from .capture import recorder
from .compiled import CompiledRegions
from .compiler import CompilerWatch, in_use
from .defined import DefinedCalls
from .escapes import Escapes
from .gate import Gate
from .held import holder_of
from .mapping import Side
from .payload import Pool
from .plan import CaptureFailed, Plan
from .scope import MODULES_MAX, Part, whole
from .shards import flat_shards, gaps, local, named, part_of
from .sites import uncompiled
from .storages import BUFFER, PARAMETER, STATE, described
from .taps import STATE_TAP, UPDATE, VALUE, Guard, Taps, tensors_of
from .v1 import audit_pb2

# Following modules and backward replaces functions of PyTorch for the whole process: one step at a time.
_active = threading.Lock()


class StepCapture:
    """Context manager of one sampled step. Afterwards: `records`, unless `failure` says why there are none."""

    def __init__(
        self,
        plan: Plan,
        pool: Pool,
        models: Iterable[torch.nn.Module] = (),
        optimizers: Iterable[Any] = (),
        outputs: bool = False,
        automatic_taps: bool = True,
        guards: Mapping[str, Guard] | None = None,
        states: Mapping[str, Any] | None = None,
        side: Side | None = None,
        part: Part | None = None,
        modules: Sequence[str] = (),
        ranks: int = 1,
        perturbing: bool = False,
        holders: Sequence[torch.nn.Module] = (),
    ) -> None:
        self.recorder = recorder(plan, pool, outputs, ranks)
        self.recorder.perturbing = perturbing
        self.recorder.defined = DefinedCalls(self.recorder)
        self.taps = Taps(self.recorder, self._retire, guards or {})
        self.gate = None if part is None else Gate(self.recorder, self.taps, part)
        self.taps.gate = self.gate
        self._models = list(models)
        self._optimizers = list(optimizers)
        self._states = states or {}
        self._automatic_taps = automatic_taps
        self._side = side
        self._modules = modules
        self._holders = list(holders)
        self._named: list[torch.Tensor] = []
        self._prefixed: list[tuple[torch.nn.Module, str]] = []  # Models, and what their names begin with.
        self._laid: set[str] = set()  # Names of the leaves of what was laid out.
        self._entered = False
        self._holds_lock = False
        self._regions = CompiledRegions(self.recorder)
        self._regions.partial = part is not None
        self._compiler = CompilerWatch(self._regions)
        self._escapes = Escapes(self.recorder)
        self._callbacks = Callbacks(self.recorder)

    @property
    def failure(self) -> CaptureFailed | None:
        return self.recorder.failure

    @property
    def unknown_backend(self) -> str:
        """Of torch.compile, whose regions compute out of sight and were met; empty: none."""
        return self._regions.unknown_backend

    @property
    def errors(self) -> list[str]:
        """Why operations that have a definition were captured without it."""
        return [] if self.recorder.defined is None else self.recorder.defined.errors

    @property
    def records(self) -> list[tuple[Any, ...]]:
        return self.recorder.records

    def __enter__(self) -> StepCapture:
        self._holds_lock = _active.acquire(blocking=False)
        if not self._holds_lock:
            self.recorder.fail("concurrent_capture", "another step of this process is being captured")
            return self
        try:
            # If a callable holds several models, its calls tell which comes first; a single one is named before that.
            roots = self._models or (self._holders if len(self._holders) == 1 else [])
            models = [(model, self.recorder.sites.register(model)) for model in roots]
            self._lay_out(models, self._optimizers, self._states)
            for model, prefix in models:
                self._name_model(model, prefix)
            for optimizer in self._optimizers:
                self._name_state(optimizer)
            self._name_states()
            self._compiler.enter()
            self.recorder.sites.on_root = self._name_root
            if self._automatic_taps:
                self.taps.install(self._optimizers)
            if self.gate is not None:
                self.gate.install()
            if self._modules:
                self.taps.follow_modules(self._modules, self.recorder.sites.path)
            self.recorder.autocast.enter()
            self._escapes.install()
            self._callbacks.install()
            self.recorder.__enter__()
            self._entered = True
        except Exception as error:
            self.recorder.guard(error)
            self._undo()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self._holds_lock:
            return
        if self._entered:
            self._entered = False
            if self.gate is not None:
                self.gate.reopen()
            if self.recorder not in _get_current_dispatch_mode_stack():  # It left with the thread that entered it.
                _push_mode(self.recorder)
            self.recorder.__exit__(None, None, None)
        if kind is not None:
            self.recorder.fail("exception", f"the step raised {kind.__name__}")
        elif self.failure is None:
            try:
                if not self._compiler.followed and in_use():
                    raise CaptureFailed("compiled_region", "the step was the first to ask for torch.compile")
                self._read_again()
                self.taps.finish()
                self.recorder.exchanges.name_sources()
                self._read_unused()
            except Exception as failure:
                self.recorder.guard(failure)
        self._undo()

    def tap(self, name: str, tensor: torch.Tensor) -> None:
        """Names a result to be judged, as it is now."""
        if self.failure is None:
            try:
                if not isinstance(tensor, torch.Tensor):
                    raise CaptureFailed("unmodelled_tap", f"tap {name!r}: expected a tensor, found {tensor!r}"[:200])
                self.taps.add(name, VALUE, [(tensor, 1.0)])
            except Exception as error:
                self.recorder.guard(error)

    def reference(self, values: Mapping[str, torch.Tensor | float]) -> None:
        """Bare reference values of taps, by name."""
        if self.failure is None:
            try:
                self.taps.reference(values)
            except Exception as error:
                self.recorder.guard(error)

    def scope(self, models: Iterable[torch.nn.Module]) -> audit_pb2.Scope:
        """What the trace holds of the models."""
        part = whole(models) if self.gate is None else self.gate.part
        scope = audit_pb2.Scope(modules_total=len(part.names), parameters_total=part.parameters_total)
        if self.gate is not None:
            scope.partial = True
            scope.modules.extend(sorted(self.gate.ran)[:MODULES_MAX])
            scope.left_out.extend(sorted(set(part.names.values()) - self.gate.ran)[:MODULES_MAX])
        return scope

    def _undo(self) -> None:
        self._compiler.leave()
        self._escapes.remove()
        self._callbacks.remove()
        self.recorder.autocast.leave()
        self.recorder.sites.on_root = None
        if self.gate is not None:
            self.gate.uninstall()
        self.taps.uninstall()
        self.recorder.close()
        if self._holds_lock:
            self._holds_lock = False
            _active.release()
        self._named.clear()
        self._prefixed.clear()
        self._models.clear()  # They live no longer for having been captured.
        self._optimizers.clear()
        self._holders.clear()
        if self.failure is not None:
            self.recorder.records.clear()
            self.recorder.arena.release()

    def drop(self, failure: CaptureFailed) -> None:
        """Ends the capture within the step: what follows runs as if never watched."""
        if self.failure is None:
            self.recorder.failure = failure
        self._retire()

    def _retire(self) -> None:
        """Leaves the dispatch mode early, once the capture has failed: what follows runs as if never watched."""
        if self.failure is not None and self._entered and _get_current_dispatch_mode() is self.recorder:
            self._entered = False
            self.recorder.__exit__(None, None, None)

    def _name_root(self, module: torch.nn.Module) -> None:
        """Names a module that runs outermost, by the model that it is a part of where that is known."""
        model = holder_of(module, self._holders)
        prefix = self.recorder.sites.register(model)
        self._lay_out([(model, prefix)], [], {})
        self._name_model(model, prefix)

    def _name_model(self, model: torch.nn.Module, prefix: str) -> None:
        """Names a model's parameters, buffers and carried gradients. Tied tensors keep their first name."""
        storages = self.recorder.storages
        self._prefixed.append((model, prefix))
        for name, parameter in model.named_parameters(prefix=prefix):
            name = named(uncompiled(name), parameter)
            if _plain(local(parameter)):
                self.taps.names.setdefault(parameter, name)
                audited = self.gate is None or parameter in self.gate.part.parameters
                self._adopt(parameter, PARAMETER, "param:", name, audited)
                if parameter.numel() or part_of(parameter) is None:  # Of which this rank may hold nothing.
                    self._watch(UPDATE, "update:" + name, parameter)
                if parameter.grad is not None and _plain(local(parameter.grad)):
                    storages.adopt_part(parameter.grad, STATE, f"state:{name}.grad", parameter).foreign = not audited
        for name, buffer in model.named_buffers(prefix=prefix):
            name = uncompiled(name)
            if _plain(buffer):
                owner = name.rpartition(".")[0]
                self._adopt(buffer, BUFFER, "buffer:", name, self.gate is None or owner in self.gate.part.chosen)
                self._watch(STATE_TAP, "buffer:" + name, buffer)

    def _assemble_flat(self, model: torch.nn.Module, prefix: str) -> None:
        """Classic FSDP lays its parameters into one storage: each is a leaf of its own, the storage made of them."""
        names = {parameter: uncompiled(name) for name, parameter in model.named_parameters(prefix=prefix)}
        for flat, parameters in flat_shards(model):
            if not all(parameter in names for parameter in parameters) or not _plain(flat):
                continue
            named_parts = [(PARAMETER, "param:" + names[parameter], parameter) for parameter in parameters]
            leaves = assemble(self.recorder, flat, named_parts, gaps(flat, parameters))
            for parameter, leaf in zip(parameters, leaves, strict=False):
                self.taps.origins["update:" + names[parameter]] = leaf
            entry = self.recorder.storages.adopt(flat)
            entry.origin = (entry.value, entry.dtype)

    def _lay_out(
        self, models: list[tuple[torch.nn.Module, str]], optimizers: list[Any], states: Mapping[str, Any]
    ) -> None:
        """Names, all at once, what does not lie row by row in a storage of its own."""
        if self.gate is not None:
            return
        named_tensors: list[Named] = []
        names: dict[torch.Tensor, str] = {}
        for model, prefix in models:
            self._assemble_flat(model, prefix)
            for name, parameter in model.named_parameters(prefix=prefix):
                name = names[parameter] = uncompiled(name)
                named_tensors.append((PARAMETER, "param:" + name, parameter))
                if parameter.grad is not None:
                    named_tensors.append((STATE, f"state:{name}.grad", parameter.grad))
            for name, buffer in model.named_buffers(prefix=prefix):
                named_tensors.append((BUFFER, "buffer:" + uncompiled(name), buffer))
        for optimizer in optimizers:
            for index, group in enumerate(getattr(optimizer, "param_groups", ())):
                for position, parameter in enumerate(group["params"]):
                    if parameter not in names:
                        names[parameter] = f"group{index}.{position}"
                        named_tensors.append((PARAMETER, "param:" + names[parameter], parameter))
                    if part_of(parameter) is None:
                        state = tensors_of("state:" + names[parameter], optimizer.state.get(parameter, {}))
                        named_tensors.extend((STATE, name, tensor) for name, tensor in state)
        for holder_name, holder in states.items():
            named_tensors.extend((STATE, f"state:{name}", tensor) for name, tensor in tensors_of(holder_name, holder))
        own = [one for one in named_tensors if local(one[2]) is one[2] and _plain(one[2]) and part_of(one[2]) is None]
        side = self._side
        mapped = {one[2].untyped_storage()._cdata for one in own if side is not None and side.maps(one[1])}
        laid = assemble_laid(self.recorder, [one for one in own if one[2].untyped_storage()._cdata not in mapped])
        owners = dict((leaf[0], name) for name, leaf in reversed(laid.items()))  # Tied names come after their leaf's.
        self._laid.update(owners.values())
        for name, leaf in laid.items():
            if name.startswith("param:"):
                self.taps.origins["update:" + name.removeprefix("param:")] = leaf

    def _watch(self, kind: int, name: str, tensor: torch.Tensor) -> None:
        if self._automatic_taps:
            self.taps.watch(kind, name, tensor)

    def _adopt(self, tensor: torch.Tensor, role: int, prefix: str, name: str, audited: bool) -> None:
        if audited:
            self._named.append(local(tensor))
        else:
            self.recorder.storages.adopt(local(tensor), role, prefix + name).foreign = True
            return
        parts = None if self._side is None else self._side.parameter(name, tensor)
        if parts is None:
            self.recorder.storages.adopt_part(tensor, role, prefix + name)
        else:
            assemble(self.recorder, tensor, [(role, prefix + part, view) for part, view in parts])

    def _read_again(self) -> None:
        """Looks into the holders of buffers and state once more: what the step put in a tensor's place is what it made
        of that."""
        if self.gate is not None or not self._automatic_taps:
            return
        now = [
            (f"buffer:{uncompiled(name)}", buffer)
            for model, prefix in self._prefixed
            for name, buffer in model.named_buffers(prefix=prefix)
        ]
        for index, group in self._groups():
            now.extend((f"state:group{index}.{key}", value) for key, value in group.items())
        for holder_name, holder in self._states.items():
            now.extend((f"state:{name}", tensor) for name, tensor in tensors_of(holder_name, holder))
        for name, tensor in now:
            if isinstance(tensor, torch.Tensor) and _plain(local(tensor)):
                self.taps.watch_instead(STATE_TAP, name, tensor)

    def _groups(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for optimizer in self._optimizers:
            yield from enumerate(getattr(optimizer, "param_groups", ()))

    def _read_unused(self) -> None:
        """Reads the parameters, buffers and parts of state that the step did not use: the program that it is paired
        with, or another rank, may have."""
        storages = self.recorder.storages
        for tensor in self._named:
            entry = storages.entry(tensor)
            if entry is not None and not entry.value:
                storages.read(described(tensor), whole=True)

    def _name_states(self) -> None:
        """Names what the user said to be state; what a watched model holds too keeps the name that it has there."""
        storages = self.recorder.storages
        for holder_name, holder in self._states.items():
            for name, tensor in tensors_of(holder_name, holder):
                if not _plain(local(tensor)):
                    continue
                if not storages.adopt(local(tensor)).name or f"state:{name}" in self._laid:
                    storages.adopt_part(tensor, STATE, f"state:{name}")
                    self._named.append(local(tensor))
                    self._watch(STATE_TAP, f"state:{name}", tensor)

    def _name_state(self, optimizer: Any) -> None:
        storages = self.recorder.storages
        unnamed: list[tuple[str, torch.Tensor]] = []
        states: list[tuple[torch.Tensor, list[tuple[str, torch.Tensor]]]] = []
        for index, group in enumerate(getattr(optimizer, "param_groups", ())):
            for key, value in group.items():
                if isinstance(value, torch.Tensor) and _plain(value):
                    storages.adopt(value, STATE, f"state:group{index}.{key}")
                    self._watch(STATE_TAP, f"state:group{index}.{key}", value)
            for position, parameter in enumerate(group["params"]):
                name = self.taps.names.get(parameter)
                if name is None:
                    name = self.taps.names[parameter] = f"group{index}.{position}"
                    unnamed.append((name, parameter))
                states.append((parameter, list(tensors_of(f"state:{name}", optimizer.state.get(parameter, {})))))
        for name, parameter in unnamed:
            if _plain(local(parameter)):
                storages.adopt_part(parameter, PARAMETER, f"param:{name}")
                self._watch(UPDATE, "update:" + name, parameter)
        for parameter, state in states:
            foreign = self.gate is not None and parameter not in self.gate.part.parameters
            for key, value in state:
                if _plain(local(value)):
                    if not foreign:
                        self._named.append(local(value))
                    storages.adopt_part(value, STATE, key, parameter).foreign = foreign


def _plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a storage of its own: dense, on a device, no wrapper, nor one of torch.func's transforms."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return False
    return type(tensor).__torch_dispatch__ in _PLAIN and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


_PLAIN = (torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl)
