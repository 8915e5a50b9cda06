"""Programs that average over their micro-batches after backward are the same mathematics as those that do it before, in
whatever way they scale their gradients; and what is scaled wrongly is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import plumbline

PARTS, STEPS = 3, 2


class Training:
    """A step of several micro-batches; `scale` is what happens to the gradients of their sum. None: one batch."""

    weight = 1  # Of a micro-batch's mean.

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

    # Wrong ones.

    def not_at_all(self) -> None:
        pass

    def twice(self) -> None:
        self.in_place()
        self.in_place()

    def one_layer_left_out(self) -> None:
        for parameter in self.net[0].parameters():
            parameter.grad /= PARTS


def judged(server: str, training: Training, run: str, reference: str | None) -> list[plumbline.Verdict]:
    options = {"keep_trace": True} if reference is None else {"reference": reference}
    with plumbline.watch(
        training.net, training.optimizer, server, job="scalings", run=run, every=1, on_type_ii="ignore", **options
    ) as audit:
        for number in range(STEPS):
            with audit.step():
                training.step(number)
            assert audit.flush()
        assert not audit.errors()
        return audit.verdicts()


class ByCounts(Training):
    weight = 4


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
WRONG = {
    "not_at_all": Training(Training.not_at_all),
    "twice": Training(Training.twice),
    "one_layer_left_out": Training(Training.one_layer_left_out),
}


@pytest.mark.parametrize("way", RIGHT)
def test_a_mean_after_backward_is_one_before_it(server: str, whole: str, way: str) -> None:
    for verdict in judged(server, RIGHT[way], way, whole):
        assert verdict.verdict == "TYPE_I", verdict.explain()
        assert {"loss", "all gradients"} <= set(verdict.taps)


@pytest.mark.parametrize("way", WRONG)
def test_a_wrong_scale_is_found(server: str, whole: str, way: str) -> None:
    verdict = judged(server, WRONG[way], way, whole)[0]
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "MATHEMATICS"), verdict.explain()
    print(verdict)
