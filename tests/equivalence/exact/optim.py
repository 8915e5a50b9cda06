"""torch.optim's rules, as its documentation states them, in exact arithmetic."""

from __future__ import annotations

from typing import Any

from . import composed, ops
from .reading import exact
from .tensor import Tensor, grad_mode


class _Optimizer:
    def __init__(self, parameters: Any, lr: Any = "1e-3", **options: Any) -> None:
        self.parameters = list(parameters)
        self.state: dict[Tensor, dict[str, Any]] = {p: {} for p in self.parameters}
        self.options = {"lr": exact(lr), **options}

    def zero_grad(self, set_to_none: bool = True) -> None:
        for p in self.parameters:
            p.grad = None

    def step(self) -> None:
        with grad_mode(False):
            for p in self.parameters:
                if p.grad is not None:
                    self.update(p, p.grad, self.state[p], **self.options)


def _zeros(p: Tensor) -> Tensor:
    return composed.full(p.shape, 0)


class SGD(_Optimizer):
    def update(
        self,
        p: Tensor,
        g: Tensor,
        state: dict,
        lr: Any,
        momentum: Any = 0.0,
        dampening: Any = 0.0,
        weight_decay: Any = 0.0,
        nesterov: bool = False,
        **_: Any,
    ) -> None:
        if weight_decay != 0:
            g = ops.add(g, p, alpha=exact(weight_decay))
        if momentum != 0:
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = Tensor(g.data.copy())
            else:
                kept = 1 - exact(dampening)
                state["momentum_buffer"].mul_(momentum).add_(g, alpha=1 if kept == 1 else kept)
            buffer = state["momentum_buffer"]
            g = ops.add(g, buffer, alpha=momentum) if nesterov else buffer
        p.add_(g, alpha=-lr)


class Adam(_Optimizer):
    decoupled = False

    def update(
        self,
        p: Tensor,
        g: Tensor,
        state: dict,
        lr: Any,
        betas: Any = ("0.9", "0.999"),
        eps: Any = "1e-8",
        weight_decay: Any = 0.0,
        **_: Any,
    ) -> None:
        b1, b2 = (exact(b) for b in betas)
        if not state:
            state.update(step=0, exp_avg=_zeros(p), exp_avg_sq=_zeros(p))
        state["step"] += 1
        if weight_decay != 0:
            if self.decoupled:
                p.mul_(1 - lr * exact(weight_decay))
            else:
                g = ops.add(g, p, alpha=exact(weight_decay))
        m, v = state["exp_avg"], state["exp_avg_sq"]
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        c1, c2 = 1 - b1 ** state["step"], 1 - b2 ** state["step"]
        denominator = ops.add(ops.div(ops.sqrt(v), c2.sqrt()), eps)
        p.addcdiv_(m, denominator, value=-(lr / c1))


class AdamW(Adam):
    decoupled = True

    def __init__(self, parameters: Any, lr: Any = "1e-3", weight_decay: Any = "0.01", **options: Any) -> None:
        super().__init__(parameters, lr, weight_decay=weight_decay, **options)


class RMSprop(_Optimizer):
    def update(
        self,
        p: Tensor,
        g: Tensor,
        state: dict,
        lr: Any,
        alpha: Any = "0.99",
        eps: Any = "1e-8",
        momentum: Any = 0.0,
        **_: Any,
    ) -> None:
        if not state:
            state.update(square_avg=_zeros(p), momentum_buffer=_zeros(p))
        v = state["square_avg"]
        v.mul_(alpha).addcmul_(g, g, value=1 - exact(alpha))
        denominator = ops.add(ops.sqrt(v), eps)
        if momentum != 0:
            state["momentum_buffer"].mul_(momentum).addcdiv_(g, denominator)
            p.add_(state["momentum_buffer"], alpha=-lr)
        else:
            p.addcdiv_(g, denominator, value=-lr)


class Adagrad(_Optimizer):
    def update(self, p: Tensor, g: Tensor, state: dict, lr: Any, eps: Any = "1e-10", **_: Any) -> None:
        if not state:
            state.update(sum=_zeros(p))
        state["sum"].addcmul_(g, g, value=1)
        p.addcdiv_(g, ops.add(ops.sqrt(state["sum"]), eps), value=-lr)
