"""Programs that average over their micro-batches after backward are the same mathematics as those that do it before, in
whatever way they scale their gradients; and what is scaled wrongly is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from training import watched

import plumbline

PARTS, STEPS = 3, 2


class Training:
    """A step of several micro-batches; `scale` is what happens to the gradients of their sum. None: one batch."""

    weight = 1  # Of a micro-batch's mean.
    clips = True  # After it scaled.

    def __init__(self, scale: Callable[[Training], None] | None) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.scale = scale
        self.count = torch.zeros((), dtype=torch.int64)
        # Gradients as views on a flat buffer, as bucketed reductions have them.
        self.buffer = torch.zeros(sum(parameter.numel() for parameter in self.net.parameters()))

    def step(self, number: int) -> None:
        draw = torch.Generator().manual_seed(number)
        batches = [torch.randn(4, 6, generator=draw) for _ in range(PARTS)]
        self.optimizer.zero_grad()
        if self.scale is Training.in_one_buffer:
            sizes = [parameter.numel() for parameter in self.net.parameters()]
            for parameter, part in zip(self.net.parameters(), self.buffer.zero_().split(sizes), strict=True):
                parameter.grad = part.view_as(parameter)
        if self.scale is None:
            self.net(torch.cat(batches)).square().sum(1).mean().backward()
        else:
            self.count.zero_()
            for batch in batches:
                self.count += self.weight
                loss = self.net(batch).square().sum(1).mean() * self.weight
                loss.backward()
            loss.item()  # As a log reads it.
            self.scale(self)
        if self.clips:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()

    def gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.net.parameters()]

    # Right ways.

    def in_place(self) -> None:
        for parameter in self.net.parameters():
            parameter.grad /= PARTS

    def by_lists(self) -> None:
        torch._foreach_mul_(self.gradients(), 1 / PARTS)

    def anew(self) -> None:
        for parameter in self.net.parameters():
            parameter.grad = parameter.grad / PARTS

    def by_data(self) -> None:
        for parameter in self.net.parameters():
            parameter.grad.data = parameter.grad.data / PARTS

    def by_counts(self) -> None:
        torch._foreach_mul_(self.gradients(), 1 / self.count)

    def by_counts_one_by_one(self) -> None:
        for gradient in self.gradients():
            gradient.div_(self.count)

    def in_one_buffer(self) -> None:
        self.buffer /= PARTS

    def in_two_parts(self) -> None:
        for gradient in self.gradients():
            gradient.mul_(2).div_(2 * PARTS)

    # Right ways that no text tells apart from others that change gradients.

    def copied_back(self) -> None:
        for gradient in self.gradients():
            gradient.copy_(gradient / PARTS)

    def into_itself(self) -> None:
        for gradient in self.gradients():
            torch.div(gradient, PARTS, out=gradient)

    def by_a_flat_copy(self) -> None:
        flat = torch.cat([gradient.reshape(-1) for gradient in self.gradients()]) / PARTS
        parts = flat.split([gradient.numel() for gradient in self.gradients()])
        for gradient, part in zip(self.gradients(), parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def by_subtraction(self) -> None:
        for gradient in self.gradients():
            gradient.sub_(gradient * (1 - 1 / PARTS))

    def added_to_zeros(self) -> None:
        for parameter in self.net.parameters():
            parameter.grad = torch.zeros_like(parameter).add_(parameter.grad, alpha=1 / PARTS)

    # Wrong ones.

    def copied_back_too_small(self) -> None:
        for gradient in self.gradients():
            gradient.copy_(gradient / (PARTS + 0.01))

    def a_part_of_a_flat_copy(self) -> None:
        flat = torch.cat([gradient.reshape(-1) for gradient in self.gradients()])
        flat[7:] /= PARTS
        parts = flat.split([gradient.numel() for gradient in self.gradients()])
        for gradient, part in zip(self.gradients(), parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def not_at_all(self) -> None:
        pass

    def twice(self) -> None:
        self.in_place()
        self.in_place()

    def one_layer_left_out(self) -> None:
        for parameter in self.net[0].parameters():
            parameter.grad /= PARTS


def judged(
    server: str,
    training: Training | Weighed | Begun,
    run: str,
    reference: str | None,
    steps: int = STEPS,
    **options: str,
) -> list[plumbline.Verdict]:
    options |= {"keep_trace": True} if reference is None else {"reference": reference}
    with plumbline.watch(
        training.net, training.optimizer, server, job="scalings", run=run, every=1, on_type_ii="ignore", **options
    ) as audit:
        for number in range(steps):
            with audit.step():
                training.step(number)
            assert audit.flush()
        assert not audit.errors()
        return audit.verdicts()


class ByCounts(Training):
    weight = 4


class ByAClip(Training):
    """One factor takes the mean and clips."""

    clips = False

    def rightly(self) -> None:
        self._clip(self._norm() / PARTS)

    def of_the_sum(self) -> None:
        self._clip(self._norm())

    def _norm(self) -> Tensor:
        return torch.stack([gradient.norm() for gradient in self.gradients()]).norm()

    def _clip(self, norm: Tensor) -> None:
        factor = (1 / (norm + 1e-6)).clamp(max=1) / PARTS
        for gradient in self.gradients():
            gradient *= factor


class ByANumber(ByAClip):
    """The same by what Python computes of a norm that it read."""

    def _clip(self, norm: Tensor) -> None:
        factor = min(1.0, 1 / (norm.item() + 1e-6)) / PARTS
        for gradient in self.gradients():
            gradient *= factor

    def too_much(self) -> None:
        self._clip(self._norm() / PARTS * 1.01)


@pytest.fixture(scope="module")
def whole(server: str) -> str:
    assert [verdict.verdict for verdict in judged(server, Training(None), "whole", None)] == ["TYPE_I"] * STEPS
    return "whole"


RIGHT = {
    "in_place": Training(Training.in_place),
    "by_lists": Training(Training.by_lists),
    "anew": Training(Training.anew),
    "by_data": Training(Training.by_data),
    "in_one_buffer": Training(Training.in_one_buffer),
    "in_two_parts": Training(Training.in_two_parts),
    "by_counts": ByCounts(Training.by_counts),
    "by_counts_one_by_one": ByCounts(Training.by_counts_one_by_one),
}
UNTOLD = {
    "copied_back": Training(Training.copied_back),
    "into_itself": Training(Training.into_itself),
    "by_a_flat_copy": Training(Training.by_a_flat_copy),
    "by_subtraction": Training(Training.by_subtraction),
    "added_to_zeros": Training(Training.added_to_zeros),
}
WRONG = {
    "copied_back_too_small": Training(Training.copied_back_too_small),
    "a_part_of_a_flat_copy": Training(Training.a_part_of_a_flat_copy),
    "clipped_by_the_sum": ByAClip(ByAClip.of_the_sum),
    "clipped_by_a_number_of_the_sum": ByANumber(ByANumber.of_the_sum),
    "clipped_by_a_number_too_much": ByANumber(ByANumber.too_much),
    "not_at_all": Training(Training.not_at_all),
    "twice": Training(Training.twice),
    "one_layer_left_out": Training(Training.one_layer_left_out),
}


@pytest.mark.parametrize("way", RIGHT)
def test_a_mean_after_backward_is_one_before_it(server: str, whole: str, way: str) -> None:
    for verdict in judged(server, RIGHT[way], way, whole):
        assert verdict.verdict == "TYPE_I", verdict.explain()
        assert {"loss", "all gradients"} <= set(verdict.taps)


@pytest.mark.parametrize("way", UNTOLD)
def test_a_mean_that_no_text_tells_is_told_by_the_gradients(server: str, whole: str, way: str) -> None:
    for verdict in judged(server, UNTOLD[way], way, whole):
        assert verdict.verdict == "TYPE_I", verdict.explain()
        assert any(note.startswith(f"the loss is {PARTS} times the reference's") for note in verdict.message.notes)


def test_the_mean_may_be_taken_late_in_the_reference(server: str) -> None:
    judged(server, Training(Training.by_a_flat_copy), "late", None)
    for verdict in judged(server, Training(None), "early", "late"):
        assert verdict.verdict == "TYPE_I", verdict.explain()


@pytest.mark.parametrize("clip", [ByAClip, ByANumber])
def test_what_takes_out_a_scale_where_nothing_tells_is_not_accused(
    server: str, whole: str, clip: type[ByAClip]
) -> None:
    for verdict in judged(server, clip(clip.rightly), clip.__name__, whole):
        assert verdict.verdict == "INCONCLUSIVE", verdict.explain()
        assert f"{PARTS} times the reference's, and nothing that the step trains differs" in verdict.message.sentence


class OneBatch(Training):
    def __init__(self, factor: float = 1, constant: float = 0, rate: float = 1e-6) -> None:
        super().__init__(None)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=rate)
        self.factor, self.constant = factor, constant

    def step(self, number: int) -> None:
        x = torch.randn(12, 6, generator=torch.Generator().manual_seed(number))
        self.optimizer.zero_grad()
        (self.net(x).square().sum(1).mean() * self.factor + self.constant).backward()
        self.optimizer.step()


def test_a_loss_that_trains_nothing_otherwise_is_not_accused(server: str) -> None:
    judged(server, OneBatch(), "one", None)
    for name, training, told in (
        ("rate", OneBatch(factor=2, rate=0.5e-6), "2 times the reference's, and nothing that the step trains differs"),
        ("constant", OneBatch(constant=1), "The loss differs from the reference's, and nothing that the step trains"),
    ):
        for verdict in judged(server, training, name, "one"):
            assert verdict.verdict == "INCONCLUSIVE", verdict.explain()
            assert told in verdict.message.sentence
    # However short the way is by which parameters are moved.
    for name, training in (("factor", OneBatch(factor=1.001)), ("faster", OneBatch(factor=2, rate=0.501e-6))):
        for verdict in judged(server, training, name, "one"):
            assert (verdict.verdict, verdict.cause) == ("TYPE_II", "MATHEMATICS"), verdict.explain()


class Seldom(Training):
    """Two losses, one of which an optimizer takes in every second step, where its mean is taken."""

    def __init__(self, weight: float = 1, divisor: float = 1) -> None:
        super().__init__(None)
        self.net = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])
        self.optimizer = [torch.optim.SGD(part.parameters(), lr=0.1) for part in self.net]  # type: ignore[assignment]
        self.weight, self.divisor = weight, divisor

    def step(self, number: int) -> None:
        x = torch.randn(12, 6, generator=torch.Generator().manual_seed(number))
        often, seldom = self.optimizer
        often.zero_grad()
        self.net[0](x).square().mean().backward()
        (self.net[1](x).exp().mean() * self.weight).backward()
        often.step()
        if number % 2:
            for parameter in self.net[1].parameters():
                parameter.grad.copy_(parameter.grad / self.divisor)
            seldom.step()
            seldom.zero_grad()


def test_a_mean_that_one_of_two_optimizers_takes_later(server: str) -> None:
    judged(server, Seldom(1 / PARTS), "seldom", None)
    late = judged(server, Seldom(divisor=PARTS), "seldom-late", "seldom")
    assert all(verdict.verdict != "TYPE_II" for verdict in late), [verdict.explain() for verdict in late]
    assert judged(server, Seldom(divisor=PARTS + 0.1), "seldom-wrong", "seldom")[1].verdict == "TYPE_II"


class Embedded(Training):
    def __init__(self, dense: bool, factor: float = 1) -> None:
        super().__init__(None)
        self.net = nn.Sequential(nn.Embedding(10, 6, sparse=True), self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.dense, self.factor = dense, factor

    def step(self, number: int) -> None:
        ids = torch.randint(0, 10, (12,), generator=torch.Generator().manual_seed(number))
        self.optimizer.zero_grad()
        self.net(ids).square().sum(1).mean().backward()
        if self.dense:
            table = self.net[0].weight
            table.grad = table.grad.to_dense() * self.factor
        self.optimizer.step()


def test_a_sparse_gradient_is_one(server: str) -> None:
    judged(server, Embedded(dense=False), "sparse", None)
    for verdict in judged(server, Embedded(dense=True), "dense", "sparse"):
        assert verdict.verdict == "TYPE_I", verdict.explain()
    assert judged(server, Embedded(dense=True, factor=1.01), "dense-wrong", "sparse")[0].verdict != "TYPE_I"


@pytest.mark.parametrize("way", WRONG)
def test_a_wrong_scale_is_found(server: str, whole: str, way: str) -> None:
    verdict = judged(server, WRONG[way], way, whole)[0]
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "MATHEMATICS"), verdict.explain()
    print(verdict)


class Weighed:
    """Gradients of the first parameters count less than the others."""

    def __init__(self, form: str, count: int = 2, adapts: bool = False, factor: float = 0.1) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.form, self.factor = form, factor
        parameters = list(self.net.parameters())
        self.less, others = parameters[:count], parameters[count:]
        if form == "hook":
            for parameter in self.less:
                parameter.register_hook(lambda gradient: gradient * factor)
        groups = [{"params": self.less}, *([{"params": others}] if others else [])]
        self.optimizer = (torch.optim.AdamW if adapts else torch.optim.SGD)(groups, lr=0.05)
        if form == "rate":
            self.optimizer.param_groups[0]["lr"] *= factor

    def step(self, number: int) -> None:
        draw = torch.Generator().manual_seed(number)
        self.optimizer.zero_grad()
        self.net(torch.randn(8, 6, generator=draw)).square().mean().backward()
        for parameter in self.less:
            if self.form == "mul":
                parameter.grad.mul_(self.factor)
            elif self.form == "copy":
                parameter.grad.copy_(parameter.grad * self.factor)
            elif self.form == "assign":
                parameter.grad = parameter.grad * self.factor
        if self.form == "foreach":
            torch._foreach_mul_([parameter.grad for parameter in self.less], [self.factor] * len(self.less))
        self.optimizer.step()


class Unused(Weighed):
    """Gradients that nothing is made of while somebody looks."""

    def step(self, number: int) -> None:
        self.optimizer.step = lambda: None
        super().step(number)


def reasons(verdicts: list[plumbline.Verdict]) -> str:
    return "\n".join(verdict.explain() for verdict in verdicts)


def are(verdicts: list[plumbline.Verdict], outcome: str) -> bool:
    return {verdict.verdict for verdict in verdicts} == {outcome}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_what_scales_gradients_says_nothing_of_the_loss(server: str, count: int) -> None:
    for reference in ("hook", "mul", "rate"):
        run = f"{reference}-{count}"
        judged(server, Weighed(reference, count), run, None)
        for form in ("hook", "mul", "copy", "assign", "foreach", "rate"):
            if {form, reference} != {"hook", "rate"}:  # Neither tells its gradients twice.
                verdicts = judged(server, Weighed(form, count), f"{form}-by-{run}", run)
                assert are(verdicts, "TYPE_I"), f"{form} by {reference}: {reasons(verdicts)}"


@pytest.mark.parametrize("adapts", [False, True], ids=["SGD", "AdamW"])
def test_gradients_that_are_scaled_wrongly_are_found(server: str, adapts: bool) -> None:
    for reference in ("hook", "mul", *([] if adapts else ["rate"])):
        run = f"right-{reference}-{adapts}"
        judged(server, Weighed(reference, adapts=adapts), run, None)
        for form, factor in (("none", 1), ("mul", 0.1001), ("assign", 0.1001), ("hook", 0.1001)):
            verdicts = judged(server, Weighed(form, 2, adapts, factor), f"{form}-by-{run}", run)
            assert are(verdicts, "TYPE_II"), f"{form} by {reference}: {reasons(verdicts)}"


def test_without_an_update_gradients_are_what_they_were_scaled_to(server: str) -> None:
    judged(server, Unused("none"), "unused", None)
    verdicts = judged(server, Unused("mul"), "unused-mul", "unused")
    assert are(verdicts, "TYPE_II"), reasons(verdicts)


def test_golden_runs_know_both_readings(server: str) -> None:
    for recorded in ("hook", "mul"):
        judged(server, Weighed(recorded, 4), f"golden-{recorded}", None, record_golden=recorded)
        for form, factor, outcome in (("hook", 0.1, "TYPE_I"), ("mul", 0.1, "TYPE_I"), ("mul", 0.11, "TYPE_II")):
            training = Weighed(form, 4, factor=factor)
            verdicts = judged(server, training, f"{form}-{factor}-{recorded}", None, steps=1, golden=recorded)
            assert are(verdicts, outcome), f"{form} by {recorded}: {reasons(verdicts)}"


class Begun:
    """Micro-batches whose losses are averaged by the gradient that backward begins with, or by a quotient."""

    def __init__(self, divides: bool, parts: int = PARTS) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(6, 3)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.divides, self.parts = divides, parts

    def step(self, number: int) -> None:
        draw = torch.Generator().manual_seed(number)
        self.optimizer.zero_grad()
        for _ in range(PARTS):
            loss = self.net(torch.randn(4, 6, generator=draw)).square().mean()
            if self.divides:
                (loss / self.parts).backward()
            else:
                loss.backward(torch.tensor(1 / self.parts))
        self.optimizer.step()


def test_the_gradient_that_backward_begins_with_is_rounded_as_a_factor_is(server: str) -> None:
    judged(server, Begun(divides=True), "divides", None)
    verdicts = judged(server, Begun(divides=False), "begins", "divides")
    assert are(verdicts, "TYPE_I"), reasons(verdicts)
    verdicts = judged(server, Begun(divides=False, parts=PARTS + 1), "begins-wrongly", "divides")
    assert are(verdicts, "TYPE_II"), reasons(verdicts)


@pytest.mark.parametrize("factor", [0.0, float("nan"), float("inf")])
@pytest.mark.parametrize("divides", [False, True])
def test_factors_that_cannot_be_undone(server: str, factor: float, divides: bool) -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(number: int) -> None:
        optimizer.zero_grad()
        net(torch.ones(2, 4)).square().mean().backward()
        for parameter in net.parameters():
            parameter.grad.div_(factor) if divides else parameter.grad.mul_(factor)
        optimizer.step()

    verdicts = watched(server, "undone", f"{divides}-{factor}", None, net, optimizer, 2, step)
    assert len(verdicts) == 2
    assert all(not name.startswith("unscaled:grad:") for verdict in verdicts for name in verdict.taps)
