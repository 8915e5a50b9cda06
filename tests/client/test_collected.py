"""Programs that collect their gradients themselves are judged by what they give their optimizers; what no optimizer
takes, and what is no loss though backward begins with it, accuses nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import plumbline

PARTS, STEPS = 3, 2


class Training:
    """A step of several micro-batches whose gradients `collect` brings together. None: one batch."""

    def __init__(self, collect: Callable[[Training], None] | None, clips: bool = False) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.parameters = list(self.net.parameters())
        self.models: list[nn.Module] = [self.net]
        self.optimizers = [torch.optim.Adam(self.parameters, lr=0.01)]
        self.collect, self.clips = collect, clips

    def step(self, number: int) -> None:
        draw = torch.Generator().manual_seed(number)
        self.batches = [torch.randn(4, 6, generator=draw) for _ in range(PARTS)]
        self.optimizers[0].zero_grad()
        if self.collect is None:
            self.loss(torch.cat(self.batches)).backward()
        else:
            self.collect(self)
        if self.clips:
            nn.utils.clip_grad_norm_(self.parameters, 0.1)
        self.optimizers[0].step()

    def loss(self, batch: Tensor) -> Tensor:
        return self.net(batch).square().sum(1).mean()

    def gradients(self) -> list[list[Tensor]]:
        """Of each micro-batch's mean."""
        found = []
        for batch in self.batches:
            self.net.zero_grad()
            self.loss(batch).backward()
            found.append([parameter.grad for parameter in self.parameters])
        return found

    def give(self, gradients: list[Tensor]) -> None:
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient

    # Right ways.

    def buffers(self, clears: str = "none", weight: float = 1 / PARTS) -> None:
        sums = [torch.zeros_like(parameter) for parameter in self.parameters]
        for batch in self.batches:
            (self.loss(batch) * weight).backward()
            for total, parameter in zip(sums, self.parameters, strict=True):
                total.add_(parameter.grad)
                if clears == "none":
                    parameter.grad = None
                else:
                    parameter.grad.zero_()
        self.give(sums)

    def buffers_beside_zeroed_gradients(self) -> None:
        self.buffers("zero")

    def buffers_scaled_in_place(self) -> None:
        self.buffers(weight=1)
        for parameter in self.parameters:
            parameter.grad.div_(PARTS)

    def means(self) -> None:
        self.give([torch.stack(each).mean(0) for each in zip(*self.gradients(), strict=True)])

    def sums_divided(self) -> None:
        self.give([sum(each) / PARTS for each in zip(*self.gradients(), strict=True)])

    def copied_into_place(self) -> None:
        gradients = [sum(each) / PARTS for each in zip(*self.gradients(), strict=True)]
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter.grad.copy_(gradient)

    def one_flat_buffer(self) -> None:
        flat = sum(torch.cat([part.flatten() for part in each]) for each in self.gradients()) / PARTS
        sizes = [parameter.numel() for parameter in self.parameters]
        self.give([part.view_as(p) for part, p in zip(flat.split(sizes), self.parameters, strict=True)])

    def handed_out(self) -> None:
        found = [torch.autograd.grad(self.loss(batch) / PARTS, self.parameters) for batch in self.batches]
        self.give([sum(each) for each in zip(*found, strict=True)])

    def looked_at_before(self) -> None:
        self.loss(self.batches[0]).backward()
        self.net.zero_grad()
        self.loss(torch.cat(self.batches)).backward()

    # Wrong ones.

    def not_divided(self) -> None:
        self.give([sum(each) for each in zip(*self.gradients(), strict=True)])

    def one_part_left_out(self) -> None:
        self.give([sum(each[1:]) / PARTS for each in zip(*self.gradients(), strict=True)])

    def one_layer_left_out(self) -> None:
        kept = self.gradients()
        self.give([*kept[-1][:2], *(sum(each) / PARTS for each in list(zip(*kept, strict=True))[2:])])

    def buffers_not_weighed(self) -> None:
        self.buffers(weight=1)


class Private(Training):
    """Gradients are clipped by sample, and noise is added to their sum."""

    bound = 0.5

    def gradients_of_samples(self) -> list[list[Tensor]]:
        found = []
        for sample in torch.cat(self.batches):
            self.net.zero_grad()
            self.loss(sample[None]).backward()
            gradients = [parameter.grad for parameter in self.parameters]
            norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
            found.append([gradient * (self.bound / norm).clamp(max=1) for gradient in gradients])
        return found

    def noise(self, like: Tensor) -> Tensor:
        return torch.randn_like(like) * 0.01

    def by_lists(self) -> None:
        self.give([sum(each) for each in zip(*self.gradients_of_samples(), strict=True)])
        for parameter in self.parameters:
            parameter.grad = (parameter.grad + self.noise(parameter)) / 12

    def in_place(self) -> None:
        self.give([torch.stack(each).sum(0) for each in zip(*self.gradients_of_samples(), strict=True)])
        for parameter in self.parameters:
            parameter.grad.add_(self.noise(parameter))
            parameter.grad.div_(12)

    def bounded_elsewhere(self) -> None:
        self.bound = 0.6
        self.in_place()


class Rivals(Training):
    """A generator and its discriminator."""

    def __init__(self, form: str) -> None:
        torch.manual_seed(0)
        self.net, self.rival = nn.Linear(4, 8), nn.Linear(8, 1)
        self.models = [nn.ModuleDict({"generator": self.net, "rival": self.rival})]
        self.optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (self.rival, self.net)]
        self.form = form

    def step(self, number: int) -> None:
        draw = torch.Generator().manual_seed(number)
        real, noise = torch.randn(10, 8, generator=draw), torch.randn(10, 4, generator=draw)
        self.models[0].zero_grad()
        made = self.net(noise)
        if self.form in ("first", "first_frozen"):
            self.generate(self.net(noise))
        self.optimizers[0].zero_grad(set_to_none=self.form != "zeroed")
        (softplus(-self.rival(real)).mean() + softplus(self.rival(made.detach())).mean()).backward()
        self.optimizers[0].step()
        if self.form not in ("first", "first_frozen"):
            self.generate(made)

    def generate(self, made: Tensor) -> None:
        self.rival.requires_grad_("frozen" not in self.form)
        self.optimizers[1].zero_grad()
        loss = softplus(-self.rival(made)).mean()
        if self.form == "wrong":
            loss = loss * 1.01
        if self.form == "handed_out":
            for parameter, gradient in zip(
                self.net.parameters(), torch.autograd.grad(loss, list(self.net.parameters())), strict=True
            ):
                parameter.grad = gradient
        else:
            loss.backward()
        self.rival.requires_grad_(True)
        self.optimizers[1].step()


class Taught(Training):
    """A teacher that no optimizer has, and that learns nothing, whether or not gradients are taken of it."""

    def __init__(self, frozen: bool) -> None:
        super().__init__(None)
        self.teacher = nn.Linear(6, 3).requires_grad_(not frozen)
        self.models.append(self.teacher)

    def loss(self, batch: Tensor) -> Tensor:
        self.teacher.zero_grad()
        return (self.net(batch) - self.teacher(batch)).square().mean()


class Cached(Training):
    """The gradients of a loss over a batch, of parts of the batch: what each part begins backward with is no loss."""

    wrong = 1.0

    def loss(self, batch: Tensor) -> Tensor:
        return self.contrast(self.net(batch))

    def contrast(self, made: Tensor) -> Tensor:
        return nn.functional.cross_entropy(made @ made.T / 5, torch.arange(len(made)))

    def by_parts(self) -> None:
        with torch.no_grad():
            made = torch.cat([self.net(batch) for batch in self.batches])
        (given,) = torch.autograd.grad(self.contrast(made.requires_grad_()), made)
        for batch, part in zip(self.batches, given.split(4), strict=True):
            (self.net(batch) * part * self.wrong).sum().backward()

    def by_leaves(self) -> None:
        with torch.no_grad():
            made = torch.cat([self.net(batch) for batch in self.batches])
        self.contrast(made.requires_grad_()).backward()
        for batch, part in zip(self.batches, made.grad.split(4), strict=True):
            self.net(batch).backward(part)

    def wrongly(self) -> None:
        self.wrong = 1.01
        self.by_parts()


def judged(server: str, training: Training, run: str, reference: str | None) -> list[plumbline.Verdict]:
    options = {"keep_trace": True} if reference is None else {"reference": reference}
    with plumbline.watch(
        training.models, training.optimizers, server, job="collected", run=run, every=1, on_type_ii="ignore", **options
    ) as audit:
        for number in range(STEPS):
            torch.manual_seed(number)
            with audit.step():
                training.step(number)
            assert audit.flush()
        assert not audit.errors()
        return audit.verdicts()


def pair(server: str, reference: Training, target: Training, name: str) -> list[plumbline.Verdict]:
    first = judged(server, reference, f"{name}-reference", None)
    assert [verdict.verdict for verdict in first] == ["TYPE_I"] * STEPS, [verdict.explain() for verdict in first]
    return judged(server, target, name, f"{name}-reference")


def agree(verdicts: list[plumbline.Verdict]) -> None:
    assert [verdict.verdict for verdict in verdicts] == ["TYPE_I"] * STEPS, [v.explain() for v in verdicts]


def accused(verdicts: list[plumbline.Verdict]) -> None:
    first = verdicts[0]
    assert (first.verdict, first.grade, first.cause) == ("TYPE_II", "PROVEN", "MATHEMATICS"), first.explain()


WAYS = [
    Training.buffers,
    Training.buffers_beside_zeroed_gradients,
    Training.buffers_scaled_in_place,
    Training.means,
    Training.sums_divided,
    Training.copied_into_place,
    Training.one_flat_buffer,
    Training.handed_out,
    Training.looked_at_before,
]


@pytest.fixture(scope="module", params=[False, True], ids=["", "clipped"])
def whole(server: str, request: pytest.FixtureRequest) -> bool:
    agree(judged(server, Training(None, request.param), f"whole-{request.param}", None))
    return bool(request.param)


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_collect_gradients(server: str, way: Callable[[Training], None], whole: bool) -> None:
    clips = whole
    verdicts = judged(server, Training(way, clips), f"{way.__name__}-{clips}", f"whole-{clips}")
    agree(verdicts)
    # What was clipped is not told from what was collected where nothing shows what it was before.
    if not clips or way not in WAYS[3:7]:
        assert not any("'grad:" in note for note in verdicts[0].notes), verdicts[0].notes


@pytest.mark.parametrize(
    "bug", [Training.not_divided, Training.one_part_left_out, Training.one_layer_left_out, Training.buffers_not_weighed]
)
def test_bugs_in_collecting(server: str, bug: Callable[[Training], None], whole: bool) -> None:
    accused(judged(server, Training(bug, whole), f"{bug.__name__}-{whole}", f"whole-{whole}"))


def test_gradients_of_samples(server: str) -> None:
    agree(pair(server, Private(Private.by_lists), Private(Private.in_place), "samples"))
    accused(pair(server, Private(Private.by_lists), Private(Private.bounded_elsewhere), "samples-wrong"))


@pytest.mark.parametrize("form", ["frozen", "handed_out", "zeroed", "first_frozen"])
def test_gradients_that_no_optimizer_takes(server: str, form: str) -> None:
    agree(pair(server, Rivals("first" if "first" in form else ""), Rivals(form), f"left-over-{form}"))


def test_a_wrong_gradient_beside_those(server: str) -> None:
    accused(pair(server, Rivals("frozen"), Rivals("wrong"), "left-over-wrong"))


def test_a_teacher_that_nobody_trains(server: str) -> None:
    verdicts = pair(server, Taught(frozen=False), Taught(frozen=True), "taught")
    agree(verdicts)


@pytest.mark.parametrize("way", [Cached.by_parts, Cached.by_leaves])
def test_what_is_no_loss(server: str, way: Callable[[Cached], None]) -> None:
    agree(pair(server, Cached(None), Cached(way), way.__name__))


def test_a_wrong_gradient_of_what_is_no_loss(server: str) -> None:
    accused(pair(server, Cached(None), Cached(Cached.wrongly), "wrongly"))


def test_without_an_optimizer_what_backward_left_is_compared(server: str) -> None:
    class Alone(Training):
        weight = 1.0

        def __init__(self) -> None:
            super().__init__(None)
            self.optimizers = []

        def step(self, number: int) -> None:
            self.net.zero_grad()
            draw = torch.Generator().manual_seed(number)
            (self.loss(torch.randn(4, 6, generator=draw)) * self.weight).backward()

    class Wrong(Alone):
        weight = 1.5

    agree(pair(server, Alone(), Alone(), "alone"))
    accused(pair(server, Alone(), Wrong(), "alone-wrong"))
