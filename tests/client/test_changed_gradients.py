"""Gradients that a program changes between backward and the optimizer are what another program makes within backward,
in the forward or of the update; and what is changed wrongly is found."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training import watched

import plumbline
from plumbline.payload import Pool
from plumbline.plan import Plan
from plumbline.step import StepCapture

STEPS = 2
DECAY = 0.3


class Job(NamedTuple):
    address: str
    name: str


Optimizer = Callable[[list[Tensor]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimizer] = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "decay": lambda parameters: torch.optim.SGD(parameters, lr=0.1, weight_decay=DECAY),
}
MASKS = ["hook", "forward", "mul", "index", "assign", "fill", "foreach"]
Rule = Callable[[Tensor], Tensor]
RULES: dict[str, Rule] = {  # Of a gradient, one by one.
    "centred": lambda g: g - g.mean(0, keepdim=True),
    "signs": torch.sign,
    "limited": lambda g: g.clamp(-0.01, 0.01),
    "clipped": lambda g: g * (0.05 / (g.norm() + 1e-6)).clamp(max=1),
    "squashed": lambda g: torch.tanh(10 * g) / 10,
    "noised": lambda g: g + 0.01 * torch.arange(g.numel()).view_as(g).sin(),
    "normalised": lambda g: g / (g.norm() + 1e-8),
}
IN_PLACE: dict[str, Rule] = {
    "limited": lambda g: g.clamp_(-0.01, 0.01),
    "squashed": lambda g: g.mul_(10).tanh_().div_(10),
    "normalised": lambda g: g.div_(g.norm() + 1e-8),
}


class Program:
    """A linear layer whose weights are pruned, and stay so."""

    def __init__(self, form: str, optimizer: str, clip: bool) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(6, 4)
        self.weight = self.net.weight
        self.mask = (torch.rand(4, 6) > 0.4).float()
        with torch.no_grad():
            self.weight.mul_(self.mask)
        self.optimizer = OPTIMIZERS[optimizer](list(self.net.parameters()))
        self.form, self.clip = form, clip
        if form == "hook":
            self.weight.register_hook(lambda gradient: gradient * self.mask)
        elif form == "decay by hook":
            for each in self.net.parameters():
                each.register_hook(lambda gradient, each=each: gradient + DECAY * each.detach())

    def step(self, draw: torch.Generator) -> None:
        self.optimizer.zero_grad()
        weight = self.weight * self.mask if self.form == "forward" else self.weight
        x = torch.randn(8, 6, generator=draw)
        nn.functional.linear(x, weight, self.net.bias).square().mean().backward()
        with torch.no_grad():
            self.change()
        if self.clip:
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.01)
        before = self.weight.detach().clone()
        self.optimizer.step()
        if self.form == "update":
            with torch.no_grad():
                self.weight.copy_(torch.where(self.mask == 0, before, self.weight))

    def change(self) -> None:
        gradient = self.weight.grad
        if self.form == "mul":
            gradient.mul_(self.mask)
        elif self.form == "index":
            gradient[self.mask == 0] = 0
        elif self.form == "assign":
            self.weight.grad = gradient * self.mask
        elif self.form == "fill":
            gradient.masked_fill_(self.mask == 0, 0)
        elif self.form == "foreach":
            torch._foreach_mul_([gradient], [self.mask])
        elif self.form == "by hand":
            for parameter in self.net.parameters():
                parameter.grad.add_(parameter, alpha=DECAY)
        elif self.form == "by foreach":
            parameters = list(self.net.parameters())
            torch._foreach_add_([parameter.grad for parameter in parameters], parameters, alpha=DECAY)
        elif self.form == "scale":
            for parameter in self.net.parameters():
                parameter.grad /= 2
        elif self.form == "wrong mask":
            gradient.mul_(self.mask.flip(0))
        elif self.form == "wrong decay":
            for parameter in self.net.parameters():
                parameter.grad.add_(parameter, alpha=2 * DECAY)


@pytest.fixture
def job(server: str, request: pytest.FixtureRequest) -> Job:
    return Job(server, request.node.name.replace("[", ":").removesuffix("]"))


def run(
    job: Job, form: str, reference: str | None = None, optimizer: str = "SGD", clip: bool = False
) -> list[plumbline.Verdict]:
    program, draw = Program(form, optimizer, clip), torch.Generator().manual_seed(1)
    audit = plumbline.watch(
        program.net,
        program.optimizer,
        job.address,
        job=job.name,
        run=name_of(form, optimizer, clip, reference),
        reference=reference,
        every=1,
        keep_trace=True,
    )
    for _ in range(STEPS):
        with audit.step():
            program.step(draw)
        assert audit.flush()
    verdicts = audit.verdicts()
    audit.close()
    assert len(verdicts) == STEPS
    return verdicts


def name_of(form: str, optimizer: str = "SGD", clip: bool = False, reference: str | None = None) -> str:
    name = f"{form}.{optimizer}.{clip}" + (f":{reference}" if reference else "")
    return name.replace(" ", "-")


def judge(job: Job, pairs: list[tuple[str, str]], optimizer: str = "SGD", clip: bool = False) -> None:
    """Judges each form by the one that it is paired with: none may be accused."""
    for form in dict.fromkeys(reference for _, reference in pairs):
        run(job, form, None, optimizer, clip)
    for form, reference in pairs:
        for verdict in run(job, form, name_of(reference, optimizer, clip), optimizer, clip):
            assert verdict.verdict == "TYPE_I", f"{form} by {reference}: {verdict.explain()}"


def both_ways(forms: list[str], other: str) -> list[tuple[str, str]]:
    return [pair for form in forms for pair in ((form, other), (other, form))]


@pytest.mark.parametrize("optimizer", ["momentum", "AdamW"])
def test_masks_are_one_mathematics_wherever_they_are_applied(job: Job, optimizer: str) -> None:
    judge(job, list(itertools.permutations(MASKS, 2)), optimizer)


@pytest.mark.parametrize("named", RULES)
def test_a_rule_is_one_mathematics_wherever_it_is_applied(job: Job, named: str) -> None:
    rule = RULES[named]

    def run(name: str, reference: str | None = None) -> plumbline.Verdict:
        torch.manual_seed(0)
        net, x = nn.Linear(6, 4), torch.randn(8, 6)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        if name in ("hook", "wrong"):
            for parameter in net.parameters():
                parameter.register_hook((lambda g: rule(g) * 1.01) if name == "wrong" else rule)
        audit = plumbline.watch(
            net,
            optimizer,
            job.address,
            job=job.name,
            run=f"{name}-by-{reference}" if reference else name,
            reference=reference,
            every=1,
            keep_trace=True,
        )
        with audit.step():
            net(x).square().mean().backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    if name == "copied":
                        parameter.grad.copy_(rule(parameter.grad))
                    elif name == "assigned":
                        parameter.grad = rule(parameter.grad)
                    elif name == "in-place":
                        IN_PLACE[named](parameter.grad)
            optimizer.step()
        assert audit.flush()
        (verdict,) = audit.verdicts()
        audit.close()
        return verdict

    for name in ("hook", "copied", "assigned"):
        run(name)
    for name in ("copied", "assigned", *(["in-place"] if named in IN_PLACE else [])):
        verdict = run(name, "hook")
        assert verdict.verdict == "TYPE_I", f"{name}: {verdict.explain()}"
    for reference in ("copied", "assigned"):
        verdict = run("wrong", reference)
        assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


def test_masked_gradients_are_masked_updates(job: Job) -> None:
    judge(job, both_ways(MASKS[2:], "update"))


def test_masks_before_clipping(job: Job) -> None:
    judge(job, both_ways(MASKS[1:], "hook"), clip=True)


def test_weight_decay_is_added_by_anyone(job: Job) -> None:
    run(job, "none", optimizer="decay")
    for form in ("by hand", "by foreach"):
        run(job, form)
        verdicts = run(job, form, name_of("none", "decay")) + run(job, "none", name_of(form), "decay")
        assert {verdict.verdict for verdict in verdicts} == {"TYPE_I"}, verdicts


def test_weight_decay_is_added_within_backward(job: Job) -> None:
    judge(job, both_ways(["by hand", "by foreach"], "decay by hook"))


def test_clipped_gradients_may_take_the_place_of_what_backward_left(job: Job) -> None:
    def run(form: str, reference: str | None = None) -> list[plumbline.Verdict]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        options = {"keep_trace": True} if reference is None else {"reference": reference}
        audit = plumbline.watch(net, optimizer, job.address, job=job.name, run=form, every=1, **options)
        with audit.step():
            net(torch.randn(8, 6)).square().mean().backward()
            if form == "call":
                nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            else:
                gradients = [parameter.grad for parameter in net.parameters()]
                norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
                coefficient = (0.05 / (norm + (1e-6 if form != "wrong" else 1e-2))).clamp(max=1)
                for parameter in net.parameters():
                    if form == "assigned":
                        parameter.grad = parameter.grad * coefficient
                    else:
                        parameter.grad.data = parameter.grad.data * coefficient
            optimizer.step()
        assert audit.flush()
        verdicts = audit.verdicts()
        audit.close()
        return verdicts

    run("call")
    for form, outcome in (("assigned", "TYPE_I"), ("data", "TYPE_I"), ("wrong", "TYPE_II")):
        (verdict,) = run(form, "call")
        assert verdict.verdict == outcome, f"{form}: {verdict.explain()}"


def test_wrong_changes_are_found(job: Job) -> None:
    for reference in ("hook", "mul", "assign"):
        run(job, reference)
        for form in ("wrong mask", "forgotten"):
            for verdict in run(job, form, name_of(reference)):
                assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()
    run(job, "by hand")
    run(job, "none", optimizer="decay")
    for reference in (name_of("by hand"), name_of("none", "decay")):
        for verdict in run(job, "wrong decay", reference):
            assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


@pytest.mark.parametrize("clip", [False, True])
def test_only_changed_gradients_are_sent_twice(clip: bool) -> None:
    changed = {"by hand": {"given:weight", "given:bias"}, **{mask: {"given:weight"} for mask in MASKS[2:]}}
    changed["scale"] = {"unscaled:loss", "unscaled:grad:weight", "unscaled:grad:bias"}
    for form in [*MASKS, "update", "scale", "by hand", "none"]:
        program = Program(form, "SGD", clip)
        with StepCapture(Plan(), Pool(), [program.net], [program.optimizer]) as step:
            program.step(torch.Generator().manual_seed(1))
        taps = {record[1]: record[3] for record in step.records if record[0] == "tap"}
        given = changed.get(form, set())
        for name in (name for name in given if name.startswith("unscaled:")):
            assert taps[name][0][2] == taps[name.removeprefix("unscaled:")][0][2], "Its content is sent once."
        assert taps.keys() == {"loss", "grad:weight", "grad:bias", "update:weight", "update:bias"} | given, form


def test_gradients_that_are_clipped_by_one_factor_each_are_sent_as_given() -> None:
    """And those that one factor clips are not, whatever clipped them before."""
    for each, given in ((True, {"given:0.weight", "given:1.weight"}), (False, set())):
        net = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 2, bias=False))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with StepCapture(Plan(), Pool(), [net], [optimizer]) as step:
            net(torch.ones(2, 6)).square().mean().backward()
            for parameters in [[one] for one in net.parameters()] if each else [list(net.parameters())]:
                nn.utils.clip_grad_norm_(parameters, 1e-2)
            contents = [one.grad.numpy().tobytes() for one in net.parameters()]
            nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            optimizer.step()
        taps = {record[1]: record[3] for record in step.records if record[0] == "tap"}
        assert {name for name in taps if name.startswith("given:")} == given
        payloads = {record[1]: bytes(record[2]) for record in step.records if record[0] == "data"}
        assert [payloads[taps[name][0][2]] for name in sorted(given)] == contents[: len(given)]


def test_rows_that_are_set_one_by_one_are_copied_once() -> None:
    """And what is scaled between a mask and clipping is scaled in what the optimizer is given."""

    def contents_of(rows: int) -> list[bytes]:
        net = nn.Linear(6, 40)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with StepCapture(Plan(), Pool(), [net], [optimizer]) as step:
            net(torch.ones(2, 6)).square().mean().backward()
            with torch.no_grad():
                for row in range(rows):
                    net.weight.grad[row] = 0
                net.weight.grad /= 2
                given = net.weight.grad.clone()
            nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            optimizer.step()
        contents = {record[1]: bytes(record[2]) for record in step.records if record[0] == "data"}
        (terms,) = (record[3] for record in step.records if record[0] == "tap" and record[1] == "given:weight")
        assert contents[terms[0][2]] == given.numpy().tobytes()
        return [content for content in contents.values() if len(content) == given.nbytes]

    assert len(contents_of(20)) == len(contents_of(2))


@pytest.mark.parametrize("bug", [False, True])
def test_what_is_subtracted_may_be_zero(server: str, bug: bool) -> None:
    """The mean of such gradients is zero but for rounding, so that roundings do not tell which reading is which."""

    def train(name: str, reference: str | None, parts: int) -> list[plumbline.Verdict]:
        torch.manual_seed(0)
        net = nn.Linear(6, 5)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

        def step(number: int) -> None:
            draw = torch.Generator().manual_seed(number)
            x, y = torch.randn(12, 6, generator=draw), torch.randint(0, 5, (12,), generator=draw)
            optimizer.zero_grad()
            for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (F.cross_entropy(net(a), b, reduction="sum") / 12).backward()
            for parameter in net.parameters():
                mean = parameter.grad.mean(0, keepdim=True)
                parameter.grad.sub_(mean + 1e-6 if bug and parts > 1 else mean)
            optimizer.step()

        return watched(server, "centred", name, reference, net, optimizer, 6, step)

    train(f"whole-{bug}", None, 1)
    found = {verdict.verdict for verdict in train(f"parts-{bug}", f"whole-{bug}", 3)}
    assert found == ({"TYPE_II"} if bug else {"TYPE_I"})
