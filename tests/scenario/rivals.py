"""What four usual rules say of the same tensors: TYPE_I where they accept the target, TYPE_II where they do not. A tap
that one side lacks is an error to assert_close, which is given the whole dictionaries; the other rules judge the taps
that both sides have."""

import math
from typing import Any

import torch
from scenario import TYPE_I, TYPE_II, Case, Taps
from torch.utils._python_dispatch import TorchDispatchMode

REPLAYS = 8
SPREADS = 30  # How often its greatest spread a result may be away: right most often of 1, 3, 10, 30 and 100, by a hair.


def assert_close(target: Taps, reference: Taps) -> str:
    """torch.testing.assert_close with its default tolerances, on every tap."""
    try:
        torch.testing.assert_close(target, reference)
    except AssertionError:
        return TYPE_II
    return TYPE_I


def fp64_rule(target: Taps, reference: Taps, oracle: Taps) -> str:
    """TYPE_II where the target's error against the reference's program in fp64 is over twice the reference's own."""
    for name, expected in _common(target, reference):
        exact = oracle[name].double()
        own = (expected.double() - exact).square().mean().sqrt()
        error = (target[name].double() - exact).square().mean().sqrt()
        if not error <= 2 * own:  # A NaN is an error too.
            return TYPE_II
    return TYPE_I


def _common(target: Taps, reference: Taps) -> list[tuple[str, torch.Tensor]]:
    return [(name, expected) for name, expected in reference.items() if name in target]


def intervals(taps: list, reference: Taps) -> str:
    """Plain forward intervals of the scalar taps: TYPE_II where the reference lies outside of the target's. An interval
    that exploded, or that a tensor tap lacks, decides nothing and so accuses nobody."""
    for tap in taps:
        if tap.name in reference and reference[tap.name].numel() == 1 and math.isfinite(tap.interval_radius):
            middle = (tap.low + tap.high) / 2
            if not abs(reference[tap.name].double().item() - middle) <= tap.interval_radius:
                return TYPE_II
    return TYPE_I


class _LastBits(TorchDispatchMode):
    """Moves every number that a program is given (data, weights, random draws) to one of its two neighbours."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._draw = torch.Generator().manual_seed(seed)
        self._known: dict[int, torch.UntypedStorage] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [*args, *(kwargs or {}).values()]
        for tensor in _tensors(given):
            self._meet(tensor)
        out = func(*args, **(kwargs or {}))
        drawn = torch.Tag.nondeterministic_seeded in func.tags
        for tensor in _tensors([out]):
            if not drawn:
                self._known[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
            self._meet(tensor)
        return out

    def _meet(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self._known:
            return
        self._known[storage._cdata] = storage
        integers = _INTEGERS.get(tensor.dtype)
        if integers is None:
            return
        whole = torch.empty(0, dtype=tensor.dtype).set_(storage)
        bits = torch.empty(0, dtype=integers).set_(storage)
        steps = torch.randint(0, 2, whole.shape, generator=self._draw, dtype=integers) * 2 - 1
        bits += torch.where((whole == 0) | ~whole.isfinite(), torch.zeros_like(steps), steps)


_INTEGERS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


def _tensors(values: Any) -> list[torch.Tensor]:
    flat = []
    for item in values:
        flat += _tensors(item) if isinstance(item, (list, tuple)) else [item] if isinstance(item, torch.Tensor) else []
    return flat


def perturbation(case: Case, target: Taps, reference: Taps) -> str:
    """TYPE_II where a tap lies further from the reference than SPREADS times the most that last-bit noise on all inputs
    moves the reference's program (the target's, where the reference is bare values) in REPLAYS replays."""
    replays = []
    for index in range(REPLAYS):
        moved_target, moved_reference = case.programs()
        with _LastBits(case.seed + index):
            replays.append((moved_reference if callable(moved_reference) else moved_target)())
    plain = reference if callable(case.programs()[1]) else target
    for name, expected in _common(target, reference):
        spread = max(_distance(replay[name], plain[name]) for replay in replays)
        if not _distance(target[name], expected) <= SPREADS * spread:
            return TYPE_II
    return TYPE_I


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """In the L2 norm; equal infinities are no distance."""
    apart = a.double() - b.double()
    return torch.where(a == b, torch.zeros_like(apart), apart).norm().item()
