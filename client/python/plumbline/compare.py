"""Compares two programs: is the difference of their results rounding, or a bug?"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import daemon
from .addresses import one_address
from .device import device_profile
from .errors import PlumblineError
from .held import held_modules
from .job import open_request
from .mapping import Made, Side, check_mapping, check_sides
from .payload import Pool
from .progress import Progress
from .recorded import record_default_backend
from .repeat import Content, changed_content, leaf_content
from .step import StepCapture
from .taps import Guard, checked_guard
from .transport import Step, Transport, wanted_of
from .v1 import verdict_pb2
from .verdict import Verdict

Program = Callable[[], Mapping[str, torch.Tensor]]
Wanted = frozenset[tuple[str, bool]]

TIMEOUT_S = 600.0
_ONE = "one daemon judges both programs of a comparison"
_PHASES = ("start", "the reference runs", "the target runs", "audit")


def compare(
    target: Program,
    reference: Program | Mapping[str, torch.Tensor] | None,
    server: str | None = None,
    profile: str | None = None,
    *,
    alpha: float | None = None,
    capture: str = "leaves",
    guards: Mapping[str, Guard] | None = None,
    mapping: Mapping[str, Made] | None = None,
    modules: Sequence[str] = (),
    timeout: float = TIMEOUT_S,
) -> Verdict:
    """Runs two callables, each of which returns a dict of tap name to tensor, and judges the target against the other.

    Each call is captured whole, as one step. A dict of tensors in place of the reference is taken as bare values,
    each of a tap of that name (of a gradient "grad:..." that the target does not give, as of one that is zero);
    None asks for the exact mathematics of the target alone. Taps are what the callables return; nothing runs
    backward by itself. The reference runs first, and torch's random state is then set back, so that the target
    draws as if it ran alone. Random draws of the two are matched by module and order, whatever their bits. The
    parameters of modules are named by the first module that each callable calls, or by the model that this is a
    part of where the callable holds it (in its closure, say). The few derivatives that PyTorch computes in another
    order while it is watched (PERTURBING_OPS) are compared as they are computed then.

    Where the audit lacks the result of an operation (one that is modelled, but not with its arguments), both callables
    run once more, from the same random state, and that is observed. A second run must find the same data, parameters
    and state as the first: a callable that changes them must set them back. Otherwise the verdict stays INCONCLUSIVE
    and says so.

    guards: (minimum, maximum) of the target's taps by name, None for no limit; where rounding alone breaks one, or can,
    the verdict's hazards say so.
    mapping: layouts that differ, by the name of a parameter or tap in one program: how it is made of the other's, by
    transpose() and concat() of plumbline.mapping.
    modules: patterns of module paths ("blocks.*"), whose outputs are taps too, "out:PATH": where the programs differ,
    the first of them that is not explained is named, however different their operations are.
    profile, alpha: as for watch(); the profile by default of the devices that each program's tensors are on. With no
    server a private daemon is started. Beyond two seconds tqdm, where it is installed, shows what is being done. Raises
    PlumblineError with the daemon's own words.
    """
    if capture not in ("leaves", "outputs"):
        raise PlumblineError(f"capture: expected 'leaves' or 'outputs', found {capture!r}")
    record_default_backend()
    mapping = mapping or {}
    check_mapping(mapping)
    if isinstance(modules, str):
        raise PlumblineError(f"modules: expected a list of patterns, found {modules!r}")
    checked = {name: checked_guard(name, *limits) for name, limits in (guards or {}).items()}
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress(_PHASES))
        address = one_address(server, _ONE) if server else stack.enter_context(daemon.private())
        outputs = capture == "outputs"
        pair = _Pair(target, reference, address, profile, alpha, outputs, checked, mapping, modules, timeout, progress)
        states = _random_states()
        once = pair.capture(frozenset())
        if once.verdict.verdict != "INCONCLUSIVE" or not once.wanted:
            return once.verdict
        found = once.content()
        after = _random_states()
        _set_random_states(states)
        try:
            again = pair.capture(once.wanted)
        except PlumblineError:
            raise
        except Exception as error:
            return once.not_repeatable(f"it raised {type(error).__name__}: {error}")
        finally:
            _set_random_states(after)
        for name, content in again.content().items():
            if changed := changed_content(found[name], content):
                return once.not_repeatable(f"the {name} began with another {changed}")
        return again.verdict


@dataclass(frozen=True)
class _Pair:
    """Two programs to be compared, and how."""

    target: Program
    reference: Program | Mapping[str, torch.Tensor] | None
    address: str
    profile: str | None
    alpha: float | None
    outputs: bool
    guards: Mapping[str, Guard]
    mapping: Mapping[str, Made]
    modules: Sequence[str]
    timeout: float
    progress: Progress

    def capture(self, wanted: Wanted) -> _Captured:
        """Runs both programs, with the results of the operations in `wanted` observed, and waits for the verdict."""
        job = f"compare-{uuid.uuid4().hex[:12]}"
        with contextlib.ExitStack() as stack:
            runs: dict[str, _Run] = {}

            def run(name: str, paired_with: str | None) -> _Run:
                made = _Run(self.address, job, name, paired_with, self.profile, self.alpha, self.timeout, wanted)
                runs[name] = stack.enter_context(made)
                return made

            values = None
            if callable(self.reference):
                first, second = run("reference", None), run("target", "reference")  # Which opens while the other runs.
                self.progress.at("the reference runs")
                states = _random_states()
                side = Side(self.mapping, is_reference=True)
                first.capture(self.reference, None, self.outputs, side=side, modules=self.modules)
                first.send()
                second.pair_with(first.name)
                _set_random_states(states)
            else:
                values = self.reference
                second = run("target", None)
            self.progress.at("the target runs")
            side = Side(self.mapping, is_reference=False)
            second.capture(self.target, values, self.outputs, self.guards, side=side, modules=self.modules)
            if "reference" in runs:
                check_sides(self.mapping, second.side, runs["reference"].side)
            second.send()
            self.progress.at("audit")
            if "reference" in runs:
                runs["reference"].wait(required=False)
            return _Captured(second.wait(required=True), runs)


class _Captured:
    """Both programs, captured once, and what was said of them."""

    def __init__(self, verdict: Verdict, runs: dict[str, _Run]) -> None:
        self.verdict = verdict
        # Results that the audit of either program lacked.
        self.wanted: Wanted = frozenset().union(*(run.wanted for run in runs.values()))
        self._runs = runs

    def content(self) -> dict[str, Content]:
        """What each program found when it began. The copies of it are let go."""
        runs, self._runs = self._runs, {}
        return {name: run.content() for name, run in runs.items()}

    def not_repeatable(self, why: str) -> Verdict:
        message = self.verdict.message
        message.sentence += f" Both programs ran once more for what is missing, but they cannot be repeated: {why}."
        message.advice.append(
            "let each run of a program begin with the same data, parameters and state, or give"
            ' capture="outputs", which observes everything in the first run'
        )
        return Verdict(message)


class _Run:
    """One run of a comparison: a stream that carries one step."""

    def __init__(
        self,
        address: str,
        job: str,
        run: str,
        reference: str | None,
        profile: str | None,
        alpha: float | None,
        timeout: float,
        wanted: Wanted,
    ) -> None:
        self.name = run
        self._ask_for = wanted
        self._timeout = timeout
        self._verdict: Verdict | None = None
        self._step: Step | None = None
        self.side = Side({}, is_reference=False)
        self._error: PlumblineError | None = None
        self._address, self._job, self._reference, self._alpha = address, job, reference, alpha
        # Which devices a program uses is known once it ran, and a stream is there before.
        self._guess = (
            None if profile else device_profile([torch.device("cuda") if _uses_cuda() else torch.get_default_device()])
        )
        self._profile = profile or self._guess
        self._transport = self._opened()

    def _opened(self) -> Transport:
        request = open_request(
            "default", self._job, self.name, 0, self._reference, self._reference is None, self._profile, self._alpha
        )
        return Transport(self._address, request, self._on_verdict, self._on_error, lambda control: None)

    def _open_again(self, why: str) -> None:
        """In a run of another name: one that is open is what it was opened as."""
        self._transport.close(0)
        self.name += f"-{why}"
        self._transport = self._opened()

    def pair_with(self, reference: str) -> None:
        """Tells, before it is captured, in which run its reference was."""
        if reference != self._reference:
            self._reference = reference
            self._open_again(f"beside-{reference}")

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._transport.close(0)

    def capture(
        self,
        program: Any,
        values: Mapping[str, torch.Tensor] | None,
        outputs: bool,
        guards: Mapping[str, Guard] | None = None,
        *,
        side: Side,
        modules: Sequence[str] = (),
    ) -> None:
        self.side = side
        if not self._transport.wait_open(self._timeout):
            raise PlumblineError(f"{self.name}: no daemon answers at the address")
        assert self._transport.plan is not None
        step = StepCapture(
            self._transport.plan.wanting(self._ask_for).alone(),
            Pool(),
            outputs=outputs,
            automatic_taps=False,
            guards=guards,
            side=self.side,
            modules=modules,
            holders=held_modules(program),
            perturbing=True,
        )
        with step:
            taps = program()
            if not isinstance(taps, Mapping) or not taps:
                raise PlumblineError(f"{self.name}: expected a dict of tap name to tensor, found {taps!r}"[:200])
            for name, tensor in taps.items():
                if not isinstance(tensor, torch.Tensor):
                    raise PlumblineError(f"{self.name}: tap {name!r}: expected a tensor, found {tensor!r}"[:200])
                for part, view in self.side.tap(name, tensor):
                    step.tap(part, view)
            if values is not None:
                for name, value in values.items():
                    # A gradient that the program does not give is none. (Other names are errors.)
                    if name not in taps and name.startswith("grad:") and isinstance(value, torch.Tensor):
                        step.tap(name, torch.zeros_like(value))
                step.reference(values)
        if step.failure is not None:
            raise PlumblineError(f"{self.name}: {step.failure} ({step.failure.reason})", step.failure.reason)
        if step.errors:
            raise PlumblineError(f"{self.name}: {'; '.join(step.errors)}")
        self._step = Step(0, step.records, step.recorder.arena, outputs)
        self._keep_profile({*step.recorder.arena.away, *(tensor.device for tensor in taps.values())})

    def _keep_profile(self, devices: set[torch.device]) -> None:
        """What the program computed on decides."""
        if self._guess is None or (found := device_profile(devices)) == self._guess:
            return
        self._profile = found
        self._open_again(found.partition("+")[0])
        if not self._transport.wait_open(self._timeout):
            raise PlumblineError(f"{self.name}: no daemon answers at the address")

    def send(self) -> None:
        assert self._step is not None
        self._transport.send(self._step)

    def wait(self, required: bool) -> Verdict:
        if not self._transport.wait_answered(self._timeout):
            raise PlumblineError(f"{self.name}: no verdict within {self._timeout:g} s", "DEADLINE_EXCEEDED")
        if self._error is not None:
            raise self._error
        if self._transport.refusal is not None:
            raise self._transport.refusal
        assert self._verdict is not None or not required
        return self._verdict  # type: ignore[return-value]

    @property
    def wanted(self) -> Wanted:
        """Results that the audit of this run lacked."""
        return frozenset() if self._verdict is None else frozenset(wanted_of(self._verdict.message))

    def content(self) -> Content:
        """What the program found when it began. Its records are let go."""
        assert self._step is not None
        found = leaf_content(self._step.records)
        self._step.records.clear()
        return found

    def _on_verdict(self, message: verdict_pb2.Verdict) -> None:
        self._verdict = Verdict(message)

    def _on_error(self, step: int, error: PlumblineError) -> None:
        self._error = PlumblineError(f"{self.name}: {error}", error.code, error.fields)


def _uses_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _random_states() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and _uses_cuda():
        states += torch.cuda.get_rng_state_all()
    return states


def _set_random_states(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])
