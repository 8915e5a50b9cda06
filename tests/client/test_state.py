"""What a step leaves is judged and watched, whoever writes it: parameters, buffers, state of optimizers and users."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from training import watched

import plumbline
from plumbline import PlumblineError

STEPS = 4


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.register_buffer("frequencies", torch.linspace(0.5, 2.0, 16))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.sin(self.norm(self.first(x)) * self.frequencies))


class Training:
    """A run of a few steps: what a step does, and what happens between the last two."""

    def __init__(self, server: str, job: str) -> None:
        torch.manual_seed(0)
        self.net = Net()
        self.average = Net()
        self.optimizer = torch.optim.Adam(self.net.parameters(), 1e-2)
        self.audit = plumbline.watch(self.net, self.optimizer, server, job=job, every=1)
        self.draw = torch.Generator().manual_seed(1)

    def loss(self) -> Tensor:
        x, y = torch.randn(32, 8, generator=self.draw), torch.randn(32, 4, generator=self.draw)
        return (self.net(x) - y).square().mean()

    def run(self, step: Callable[[], object], between: Callable[[], object] = lambda: None) -> list[plumbline.Verdict]:
        for number in range(STEPS):
            with self.audit.step():
                step()
            assert self.audit.flush()
            if number == STEPS - 2:
                with torch.no_grad():
                    between()
        assert not self.audit.errors()
        verdicts = self.audit.verdicts()
        self.audit.close()
        assert len(verdicts) == STEPS
        return verdicts

    def update(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()

    def twice(self) -> None:
        self.update()
        self.update()

    def by_hand(self) -> None:
        self.net.zero_grad()
        self.loss().backward()
        with torch.no_grad():
            for weight in self.net.parameters():
                weight -= 0.01 * weight.grad

    def sharpness_aware(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()
        kept = [weight.detach().clone() for weight in self.net.parameters()]
        with torch.no_grad():
            norm = torch.stack([weight.grad.norm() for weight in self.net.parameters()]).norm()
            for weight in self.net.parameters():
                weight.add_(weight.grad * (0.05 / (norm + 1e-12)))
        self.optimizer.zero_grad()
        self.loss().backward()
        for weight, old in zip(self.net.parameters(), kept, strict=True):
            weight.data = old
        self.optimizer.step()

    def drawn_again(self) -> None:
        self.update()
        nn.init.kaiming_uniform_(self.net.first.weight)
        self.net.last.weight.data = torch.zeros(4, 16)

    def averaged(self) -> None:
        self.update()
        with torch.no_grad():
            for mean, weight in zip(self.average.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(weight, 0.1)


def taps(verdict: plumbline.Verdict) -> set[str]:
    return {tap.name for tap in verdict.message.taps}


@pytest.mark.parametrize("step", ["twice", "by_hand", "sharpness_aware", "drawn_again", "averaged"])
def test_whoever_writes_it(server: str, step: str) -> None:
    training = Training(server, step)
    training.audit.state("mean", training.average)
    verdicts = training.run(getattr(training, step))
    assert [verdict.verdict for verdict in verdicts] == ["TYPE_I"] * STEPS, [v.sentence for v in verdicts]
    assert not any(hazard.kind == "not_trained" for verdict in verdicts for hazard in verdict.hazards)
    judged = taps(verdicts[-1])
    assert "buffer:norm.num_batches_tracked" in judged
    assert ("state:mean.first.weight" in judged) == (step == "averaged")
    assert ("state:first.weight.exp_avg" in judged) == (step != "by_hand")


@pytest.mark.parametrize(
    "spoiled",
    ["param:first.weight", "buffer:frequencies", "buffer:norm.running_var", "state:mean.last.bias", "state:lone"],
)
def test_what_changes_between_steps(server: str, spoiled: str) -> None:
    training = Training(server, spoiled)
    lone = torch.linspace(1, 2, 5)
    training.audit.state("mean", training.average)
    training.audit.state("lone", lone)
    held = {
        "param:first.weight": training.net.first.weight,
        "buffer:frequencies": training.net.frequencies,
        "buffer:norm.running_var": training.net.norm.running_var,
        "state:mean.last.bias": training.average.last.bias,
        "state:lone": lone,
    }
    verdicts = training.run(training.averaged, lambda: held[spoiled].view(-1)[-1:].mul_(1 + 1e-6))
    assert [verdict.verdict for verdict in verdicts] == ["TYPE_I"] * (STEPS - 1) + ["TYPE_II"]
    assert verdicts[-1].cause == "INVARIANT"
    assert spoiled in verdicts[-1].sentence


class Averaging(Net):
    """Keeps an average of its input as a buffer, and one of its weights beside it: written in place, or replaced."""

    def __init__(self, replaces: bool, decay: float = 0.9) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.replaces, self.decay = replaces, decay
        self.register_buffer("mean", torch.zeros(8))
        self.weights = {name: parameter.detach().clone() for name, parameter in self.named_parameters()}

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            if self.replaces:
                self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            else:
                self.mean.lerp_(x.mean(0), 0.1)
        return super().forward(x)

    def average(self) -> None:
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if self.replaces:
                    self.weights[name] = self.decay * self.weights[name] + 0.1 * parameter
                else:
                    self.weights[name].lerp_(parameter, 0.1)


def test_state_that_is_replaced_in_its_holder(server: str) -> None:
    def run(net: Averaging, name: str, reference: str | None) -> list[plumbline.Verdict]:
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        options = {"keep_trace": True} if reference is None else {"reference": reference}
        with plumbline.watch(
            net, optimizer, server, job="replaced", run=name, every=1, on_type_ii="ignore", **options
        ) as audit:
            audit.state("weights", net.weights)
            for number in range(2):
                x = torch.randn(32, 8, generator=torch.Generator().manual_seed(number))
                with audit.step():
                    optimizer.zero_grad()
                    net(x).square().mean().backward()
                    optimizer.step()
                    net.average()
                assert audit.flush()
            assert not audit.errors()
            return audit.verdicts()

    for verdict in run(Averaging(False), "in-place", None) + run(Averaging(True), "anew", "in-place"):
        assert verdict.verdict == "TYPE_I", verdict.explain()
        assert {"buffer:mean", "state:weights.first.weight"} <= taps(verdict)
    first, _ = run(Averaging(True, 0.91), "wrongly", "in-place")
    assert (first.verdict, first.grade, first.cause) == ("TYPE_II", "PROVEN", "MATHEMATICS"), first.explain()


def test_what_a_program_writes_between_all_its_steps(server: str) -> None:
    """An optimizer that runs outside of the steps."""
    training = Training(server, "outside")

    def gradients() -> None:
        training.optimizer.zero_grad()
        training.loss().backward()

    for _ in range(STEPS):
        with training.audit.step():
            gradients()
        training.optimizer.step()
    assert training.audit.flush()
    assert [verdict.verdict for verdict in training.audit.verdicts()] == ["TYPE_I"] * STEPS
    training.audit.close()


def test_two_gradients_of_one_step(server: str) -> None:
    once, twice = Training(server, "one"), Training(server, "both")
    judged = [
        run.run(getattr(run, step))[-1].message.coverage.elements for run, step in ((once, "update"), (twice, "twice"))
    ]
    weights = sum(weight.numel() for weight in twice.net.parameters())
    assert judged[1] - judged[0] == weights


def test_old_steps_that_an_optimizer_keeps(server: str) -> None:
    training = Training(server, "second-order")
    training.audit.close()
    training.optimizer = torch.optim.LBFGS(training.net.parameters(), max_iter=3)
    training.audit = plumbline.watch(training.net, training.optimizer, server, job="second-order", every=1)

    def closure() -> Tensor:
        training.optimizer.zero_grad()
        loss = training.loss()
        loss.backward()
        return loss

    verdicts = training.run(lambda: training.optimizer.step(closure))
    assert "TYPE_II" not in {verdict.verdict for verdict in verdicts}
    assert not any("old_dirs" in tap for verdict in verdicts for tap in taps(verdict))


def test_a_parameter_that_nobody_gave_to_the_optimizer(server: str) -> None:
    training = Training(server, "left-out")
    del training.optimizer.param_groups[0]["params"][0]
    for verdict in training.run(training.update):
        (hazard,) = [hazard for hazard in verdict.hazards if hazard.kind == "not_trained"]
        assert "first.weight" in hazard.sentence and hazard.remedy.startswith("give them to the optimizer")


class Wrapper(torch.optim.Optimizer):
    """As accelerate's: an optimizer by its class, with nothing of one but what it hands on."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.param_groups, self.state, self.defaults = optimizer.param_groups, optimizer.state, optimizer.defaults

    def step(self, closure: Callable[[], object] | None = None) -> None:
        self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)


def test_an_optimizer_inside_of_another(server: str) -> None:
    training = Training(server, "wrapped")
    training.audit.close()
    wrapped = Wrapper(Wrapper(training.optimizer))
    training.audit = plumbline.watch(training.net, wrapped, server, job="wrapped-twice", every=1)
    verdicts = training.run(training.update)
    assert [verdict.verdict for verdict in verdicts] == ["TYPE_I"] * STEPS
    assert {"state:first.weight.exp_avg", "update:first.weight"} <= taps(verdicts[-1])


def test_parameters_of_complex_numbers(server: str) -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 3, bias=False, dtype=torch.complex64)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    audit = plumbline.watch(net, optimizer, server, job="complex", every=1)
    for _ in range(2):
        x = torch.randn(5, 4, dtype=torch.complex64)
        with audit.step():
            optimizer.zero_grad()
            net(x).abs().square().mean().backward()
            optimizer.step()
    assert audit.flush() and not audit.errors()
    for verdict in audit.verdicts():
        assert verdict.verdict == "TYPE_I", verdict.explain()
        assert "update:weight" in taps(verdict)
    audit.close()


def test_a_step_that_cannot_be_captured_says_why(server: str) -> None:
    training = Training(server, "raises")
    with pytest.raises(ZeroDivisionError), training.audit.step():
        training.loss().backward()
        1 / 0  # noqa: B018
    assert "the step raised ZeroDivisionError" in str(training.audit.errors()[0])
    training.audit.close()


def test_state_that_holds_nothing(server: str) -> None:
    training = Training(server, "nothing")
    for holder in (None, [], {"a": 1}, "weights"):
        with pytest.raises(PlumblineError, match="state 'ema': expected a tensor"):
            training.audit.state("ema", holder)
    training.audit.close()


def test_a_rate_that_one_program_holds_as_a_tensor(server: str) -> None:
    def run(name: str, rate: float | Tensor, reference: str | None = None) -> list[str]:
        torch.manual_seed(0)
        net, draw = nn.Linear(8, 4), torch.Generator().manual_seed(1)
        optimizer = torch.optim.SGD(net.parameters(), lr=rate)

        def step(number: int) -> None:
            optimizer.zero_grad()
            net(torch.randn(12, 8, generator=draw)).square().mean().backward()
            optimizer.step()

        return [v.verdict for v in watched(server, "rates", name, reference, net, optimizer, 3, step)]

    run("tensor", torch.tensor(1 / 64))
    assert run("number", 1 / 64, "tensor") == ["TYPE_I"] * 3
    assert run("another", 1 / 32, "tensor") == ["TYPE_II"] * 3


class HandSGD(torch.optim.Optimizer):
    """Keeps a momentum of every parameter, also where that is 0; torch's keeps none there."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                held = state.get("momentum_buffer")
                state["momentum_buffer"] = parameter.grad + (0 if held is None else group["momentum"] * held)
                parameter.sub_(group["lr"] * state["momentum_buffer"])


@pytest.mark.parametrize("by_hand", [False, True])
def test_state_that_one_program_does_without(server: str, by_hand: bool) -> None:
    def run(name: str, reference: str | None, by_hand: bool, momentum: float) -> list[plumbline.Verdict]:
        torch.manual_seed(0)
        net = nn.Linear(6, 3)
        groups = [
            {"params": [net.weight], "momentum": momentum, "lr": 0.1},
            {"params": [net.bias], "momentum": 0.0, "lr": 0.1},
        ]
        optimizer = HandSGD(groups, {}) if by_hand else torch.optim.SGD(groups)

        def step(number: int) -> None:
            optimizer.zero_grad()
            net(torch.randn(5, 6, generator=torch.Generator().manual_seed(number))).square().mean().backward()
            optimizer.step()

        return watched(server, "without", name, reference, net, optimizer, 3, step)

    run(f"reference-{by_hand}", None, not by_hand, 0.9)
    for verdict in run(f"target-{by_hand}", f"reference-{by_hand}", by_hand, 0.9):
        assert verdict.verdict == "INCONCLUSIVE" and "momentum_buffer" in verdict.message.sentence, verdict.explain()
    if by_hand:
        wrong = run("wrong", f"reference-{by_hand}", by_hand, 0.8)
        assert wrong[1].verdict == "TYPE_II", wrong[1].explain()
