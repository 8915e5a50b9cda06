"""Ways to update: optimizers by hand and from libraries, several steps in one, averages of weights."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from .generative import mlp
from .language import Decoder, next_word_loss, text
from .training import Cast, Training, program, trained


def regression() -> tuple[nn.Sequential, Callable[[], torch.Tensor]]:
    model = mlp(6, 16, 16, 3)
    return model, lambda: F.mse_loss(model(torch.randn(8, 6)).float(), torch.randn(8, 3))


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal by Newton's and Schulz' iteration in bf16, as its author publishes it."""

    def __init__(self, parameters: list[nn.Parameter], lr: float = 0.02) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.lerp_(p.grad, 0.05)
                x = p.grad.lerp(momentum, 0.95).bfloat16()
                wide = x.size(0) > x.size(1)
                x = x.mT if wide else x
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.mT
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x.mT if wide else x
                p.add_(x.to(p.dtype), alpha=-group["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)


@program(bf16=False)
def muon(cast: Cast) -> Training:
    model, loss = regression()
    optimizers = [
        Muon([p for p in model.parameters() if p.ndim == 2]),
        torch.optim.AdamW([p for p in model.parameters() if p.ndim < 2], 1e-3),
    ]

    def step() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss().backward()
        for optimizer in optimizers:
            optimizer.step()

    return Training([model], optimizers, step)


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters: object, lr: float = 1e-4) -> None:
        super().__init__(parameters, {"lr": lr})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * 0.1)
                p.add_((mean * 0.9 + p.grad * 0.1).sign_(), alpha=-group["lr"])
                mean.mul_(0.99).add_(p.grad, alpha=0.01)


@program()
def lion(cast: Cast) -> Training:
    model, loss = regression()
    return trained(model, Lion(model.parameters()), loss, cast)


@program()
def sharpness_aware(cast: Cast) -> Training:
    """SAM: the gradient is taken where the loss is worst nearby."""
    model, _ = regression()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step() -> None:
        x, y = torch.randn(8, 6), torch.randn(8, 3)

        def gradients() -> None:
            optimizer.zero_grad()
            with cast():
                loss = F.mse_loss(model(x).float(), y)
            loss.backward()

        gradients()
        with torch.no_grad():
            size = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moves = [p.grad * (0.05 / (size + 1e-12)) for p in model.parameters()]
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        gradients()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        optimizer.step()

    return Training([model], [optimizer], step)


@program(bf16=False)
def quasi_newton(cast: Cast) -> Training:
    model = mlp(6, 8, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=3, line_search_fn="strong_wolfe")
    x, y = torch.randn(32, 6), torch.randn(32, 3)

    def step() -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)

    return Training([model], [optimizer], step)


@program()
def by_hand(cast: Cast) -> Training:
    model, loss = regression()

    def step() -> None:
        model.zero_grad()
        with cast():
            value = loss()
        value.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad

    return Training([model], [], step)


@program()
def averaged_weights(cast: Cast) -> Training:
    model, loss = regression()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    made = trained(model, optimizer, loss, cast, lambda: average.update_parameters(model))
    made.state["average"] = average
    return made


@program()
def look_ahead(cast: Cast) -> Training:
    model, loss = regression()
    slow = [p.detach().clone() for p in model.parameters()]

    def after() -> None:
        with torch.no_grad():
            for p, start in zip(model.parameters(), slow, strict=True):
                start.lerp_(p, 0.5)
                p.copy_(start)

    made = trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast, after)
    made.state["slow"] = slow
    return made


@program(bf16=False)
def weights_in_bf16(cast: Cast) -> Training:
    model = Decoder().to(torch.bfloat16)
    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), lambda: next_word_loss(model, text()), cast)


def _stock(make: Callable[..., torch.optim.Optimizer], **options: object) -> Callable[[Cast], Training]:
    def build(cast: Cast) -> Training:
        model, loss = regression()
        return trained(model, make(model.parameters(), **options), loss, cast)

    return build


for _name, _make, _options in (
    ("adafactor", torch.optim.Adafactor, {"lr": 1e-2}),
    ("adamax", torch.optim.Adamax, {}),
    ("radam", torch.optim.RAdam, {"lr": 1e-3}),
    ("adadelta", torch.optim.Adadelta, {}),
    ("resilient", torch.optim.Rprop, {}),
    ("fused_adamw", torch.optim.AdamW, {"fused": True}),
    ("foreach_adam", torch.optim.Adam, {"foreach": True, "weight_decay": 0.1}),
    ("averaged_sgd", torch.optim.ASGD, {}),
):
    _build = _stock(_make, **_options)
    _build.__name__ = _name
    program(bf16=False)(_build)
