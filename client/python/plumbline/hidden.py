"""Derivatives that compute otherwise when they are watched: PyTorch looks for a dispatch mode there, and takes another
formula. They run unwatched, between two hooks of their autograd nodes, and are recorded by the formula that they have
then.

So far those of `prod`, of factors none of which is zero: gradient * (result / factors). With one zero they compute
alike either way.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode, _pop_mode, _push_mode

from .storages import Window, modelled, wrote

if TYPE_CHECKING:
    from .capture import Recorder
    from .schema import OperatorInfo

# Nodes of autograd that are looked at for those whose derivative is hidden.
NODES_MAX = 1 << 20


class HiddenDerivatives:
    """Of one step."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.on = False  # All backward passes come through `around`.
        self._cumprod_asks = True
        # Factors, result, and the dimension that the result lacks (-1: none), by their node's number.
        self._calls: dict[int, tuple[Window, Window, int]] = {}

    def enter(self) -> None:
        """From now on all backward passes come through `around`. Before the step begins: it computes."""
        self.on, self._cumprod_asks = True, _cumprod_asks()

    def takes(self, info: OperatorInfo, args: Any) -> bool:
        """Whether the call's derivative can be hidden, or need not be; before the call."""
        factors = args[0]
        if info.base.startswith("cumprod"):
            return not self._cumprod_asks
        if not self.on or info.base != "prod" or not modelled(factors) or not factors.is_floating_point():
            return False
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            return int((factors == 0).sum()) <= (1 if info.name == "aten::prod.default" else factors.numel())

    def note(self, info: OperatorInfo, args: Any, factors: Window, result: torch.Tensor) -> None:
        """Keeps what the derivative of a call that was just recorded is computed from."""
        if info.base != "prod" or not args[0].requires_grad:
            return  # Without a node of its own.
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            if not bool((args[0] != 0).all()):
                return
        window, rank, lacks = self.recorder.storages.read(result), len(factors[2]), -1
        if info.name == "aten::prod.dim_int" and rank > len(window[2]):
            lacks = args[1] % rank
        self._calls[torch.autograd._get_sequence_nr() - 1] = (factors, _with(window, lacks), lacks)

    @contextlib.contextmanager
    def around(self, roots: Any) -> Iterator[None]:
        """Hides the derivatives of the nodes that lead to these roots."""
        handles = [handle for node in self._nodes(roots) for handle in self._hide(node)] if self._calls else []
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _nodes(self, roots: Any) -> list[Any]:
        ahead = [root.grad_fn for root in roots if isinstance(root, torch.Tensor) and root.grad_fn is not None]
        seen, found = set(ahead), []
        while ahead and len(seen) < NODES_MAX:
            node = ahead.pop()
            if node._sequence_nr() in self._calls and node.name().startswith("ProdBackward"):
                found.append(node)
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    ahead.append(following)
        return found

    def _hide(self, node: Any) -> tuple[Any, Any]:
        factors, result, lacks = self._calls[node._sequence_nr()]
        held: list[Window] = []  # The gradient that came in, while the derivative runs.

        def before(gradients: Any) -> None:
            held.clear()
            recorder = self.recorder
            if recorder.failure is None and _get_current_dispatch_mode() is recorder and gradients[0] is not None:
                with torch._C._DisableTorchDispatch(), recorder.lock:
                    held.append(_with(recorder.storages.read(gradients[0]), lacks))
                _pop_mode()

        def after(found: Any, gradients: Any) -> None:
            if not held:
                return
            _push_mode(self.recorder)
            try:
                with torch._C._DisableTorchDispatch(), self.recorder.lock:
                    if found[0] is not None:
                        self._record(held[0], result, factors, found[0])
            except Exception as error:
                self.recorder.guard(error)

        return node.register_prehook(before), node.register_hook(after)

    def _record(self, gradient: Window, result: Window, factors: Window, found: torch.Tensor) -> None:
        recorder = self.recorder
        recorder.site = site = recorder.sites.current()
        divide, multiply = (recorder.plan.info(op) for op in (torch.ops.aten.div.Tensor, torch.ops.aten.mul.Tensor))
        dense = tuple(math.prod(factors[2][axis + 1 :]) for axis in range(len(factors[2])))
        quotient = (recorder.storages.fresh_value(), factors[1], factors[2], dense, 0)
        phase, module, source = site
        recorder.append_op(
            ("op", divide, [result, factors], [(quotient, math.prod(factors[2]), 0, "", 0)], phase, source, module, 0)
        )
        recorder.emit(multiply, (site, [gradient, quotient], ""), [wrote(found)])


class _Onlooker(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@functools.cache
def _cumprod_asks() -> bool:
    """Whether this release's derivative of cumprod gives other bits where a dispatch mode is active."""

    def gradient(zeros: int, mode: contextlib.AbstractContextManager[Any]) -> torch.Tensor:
        factors = torch.linspace(0.3, 1.7, 12, dtype=torch.float32, device="cpu").view(2, 6)
        factors[0, :zeros] = 0
        factors.requires_grad_()
        with mode:
            result = factors.cumprod(1)
            return torch.autograd.Variable._execution_engine.run_backward(
                (result,),
                (result.detach() + 1,),
                False,
                False,
                (factors,),
                allow_unreachable=True,
                accumulate_grad=False,
            )[0]

    with torch._C._DisableTorchDispatch(), torch.enable_grad():
        plain = [gradient(zeros, contextlib.nullcontext()) for zeros in range(3)]
    with torch.enable_grad():
        watched = [gradient(zeros, _Onlooker()) for zeros in range(3)]
    return any(not torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(plain, watched, strict=True))


def _with(window: Window, dimension: int) -> Window:
    """A window with another dimension, of one element; -1: none."""
    if dimension < 0:
        return window
    value, code, sizes, strides, offset = window
    return (
        *(value, code, (*sizes[:dimension], 1, *sizes[dimension:])),
        *((*strides[:dimension], 0, *strides[dimension:]), offset),
    )
