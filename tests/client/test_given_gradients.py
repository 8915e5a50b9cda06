"""However a program gives its optimizer gradients, by hand or by a gradient scaler, they are those of the program that
leaves all of it to backward; and wrong ones are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training import watched

import plumbline

STEPS, PARTS, NORM = 2, 3, 0.1
Losses = list[Tensor]


class Program:
    """Two layers, the loss of a batch in parts, an optimizer."""

    def __init__(self, scaled: bool) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.parameters = list(self.net.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=0.1, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=128.0, enabled=scaled)

    def losses(self, number: int, parts: int) -> Losses:
        draw = torch.Generator().manual_seed(number)
        x, y = torch.randn(12, 6, generator=draw), torch.randn(12, 4, generator=draw)
        return [F.mse_loss(self.net(a), b) for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True)]

    def backward(self, losses: Losses, weight: float = 1) -> None:
        for loss in losses:
            self.scaler.scale(loss * weight).backward()

    def collect(self, losses: Losses, weight: float = 1) -> None:
        """Gradients are asked for, summed, and put where the optimizer looks for them."""
        found = [torch.autograd.grad(self.scaler.scale(loss * weight), self.parameters) for loss in losses]
        for parameter, gradients in zip(self.parameters, zip(*found, strict=True), strict=True):
            parameter.grad = gradients[0] if len(found) == 1 else sum(gradients)

    def collect_by_layers(self, losses: Losses) -> None:
        """Gradients are asked for in two calls for each loss, the last layer's first."""
        for loss in losses:
            scaled = self.scaler.scale(loss)
            for layer in (self.net[2], self.net[0]):
                of = list(layer.parameters())
                for parameter, gradient in zip(of, torch.autograd.grad(scaled, of, retain_graph=True), strict=True):
                    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def scale(self, factor: float) -> None:
        for parameter in self.parameters:
            parameter.grad.mul_(factor)

    def clip(self, put: str) -> None:
        if put == "function":
            nn.utils.clip_grad_norm_(self.parameters, NORM)
            return
        norm = torch.stack([parameter.grad.norm() for parameter in self.parameters]).norm()
        factor = (NORM / (norm + 1e-6)).clamp(max=1)
        for parameter in self.parameters:
            if put == "assign":
                parameter.grad = parameter.grad * factor
            else:
                parameter.grad.copy_(parameter.grad * factor)

    def finish(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()


Step = Callable[[Program, int], None]


def run(server: str, name: str, reference: str | None, step: Step, scaled: bool) -> list[plumbline.Verdict]:
    program = Program(scaled)

    def whole(number: int) -> None:
        program.optimizer.zero_grad()
        step(program, number)
        program.finish()

    return watched(server, "given", name, reference, program.net, program.optimizer, STEPS, whole)


def judged(server: str, name: str, reference: Step, step: Step, scaled: bool = False) -> set[str]:
    run(server, f"{name}-reference", None, reference, False)
    return {verdict.verdict for verdict in run(server, name, f"{name}-reference", step, scaled)}


@pytest.mark.parametrize("put", ["assign", "copy"])
@pytest.mark.parametrize("parts", [1, PARTS])
def test_collected_gradients_are_clipped_anew(server: str, put: str, parts: int) -> None:
    def plain(program: Program, number: int) -> None:
        program.backward(program.losses(number, 1))
        program.clip("function")

    def by_hand(factor: float) -> Step:
        def step(program: Program, number: int) -> None:
            program.collect(program.losses(number, parts), factor / parts)
            program.clip(put)
            program.scale(factor)

        return step

    assert judged(server, f"{put}{parts}", plain, by_hand(1)) == {"TYPE_I"}
    assert judged(server, f"{put}{parts}-wrong", plain, by_hand(2)) == {"TYPE_II"}


@pytest.mark.parametrize("when", ["before", "after", "collected"])
def test_means_of_scaled_gradients(server: str, when: str) -> None:
    """They are taken before or after a gradient scaler divides them, or of losses that it scaled."""

    def plain(program: Program, number: int) -> None:
        program.backward(program.losses(number, 1))

    def of_parts(weight: float) -> Step:
        def step(program: Program, number: int) -> None:
            losses = program.losses(number, PARTS)
            if when == "collected":
                return program.collect(losses, weight)
            program.backward(losses)
            if when == "after":
                program.scaler.unscale_(program.optimizer)
            program.scale(weight)

        return step

    assert judged(server, when, plain, of_parts(1 / PARTS), scaled=True) == {"TYPE_I"}
    assert judged(server, f"{when}-wrong", plain, of_parts(1 / (PARTS - 1)), scaled=True) == {"TYPE_II"}


@pytest.mark.parametrize("parts", [1, PARTS])
def test_a_scaled_loss_is_asked_for_gradients_twice(server: str, parts: int) -> None:
    def plain(program: Program, number: int) -> None:
        program.backward(program.losses(number, 1))

    def by_layers(factor: float) -> Step:
        def step(program: Program, number: int) -> None:
            program.collect_by_layers(program.losses(number, parts))
            program.scale(factor)

        return step

    assert judged(server, f"by-layers{parts}", plain, by_layers(1 / parts), scaled=True) == {"TYPE_I"}
    assert judged(server, f"by-layers{parts}-wrong", plain, by_layers(2 / parts), scaled=True) == {"TYPE_II"}


def tied(server: str, name: str, reference: str | None, sums: str) -> set[str]:
    """An embedding and the head that reads it again: one parameter, or two whose gradients are summed."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(20, 12), nn.Tanh(), nn.Linear(12, 20, bias=False))
    ours, theirs = net[0], net[2]
    with torch.no_grad():
        theirs.weight.copy_(ours.weight)
    if sums == "shared":
        theirs.weight = ours.weight
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(number: int) -> None:
        draw = torch.Generator().manual_seed(number)
        x, y = (torch.randint(0, 20, (30,), generator=draw) for _ in range(2))
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        a, b = ours.weight, theirs.weight
        if sums == "in place":
            a.grad += b.grad
            b.grad.copy_(a.grad)
        elif sums == "anew":
            a.grad = a.grad + b.grad
            b.grad = a.grad.clone()
        elif sums == "one way":
            a.grad += b.grad / 2
            b.grad.copy_(a.grad)
        optimizer.step()

    return {verdict.verdict for verdict in watched(server, "tied", name, reference, net, optimizer, STEPS, step)}


def test_parameters_that_are_tied_by_their_gradients(server: str) -> None:
    tied(server, "shared", None, "shared")
    assert tied(server, "in-place", "shared", "in place") == {"TYPE_I"}
    assert tied(server, "anew", "shared", "anew") == {"TYPE_I"}
    assert tied(server, "wrong", "shared", "one way") == {"TYPE_II"}
    assert tied(server, "untied", "shared", "nothing") == {"TYPE_II"}
