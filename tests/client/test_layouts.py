"""Parameters, buffers and state that lie otherwise in memory than the other program's: what has a name is matched by
it, element by element, whatever the layout is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline

STEPS = 3
Edit = Callable[[nn.Module], None]


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 10),
    )  # fmt: skip


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x) * torch.empty_like(x).uniform_(0.5, 1)


def noisy_images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.Dropout(0.3), nn.ReLU(), Noise(), nn.RReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))


def as_it_is(model: nn.Module) -> None:
    del model


def channels_last(model: nn.Module) -> None:
    model.to(memory_format=torch.channels_last)


def transposed(model: nn.Module) -> None:
    for layer in model:
        if isinstance(layer, nn.Linear):
            layer.weight.data = layer.weight.data.t().contiguous().t()


def flat(model: nn.Module) -> None:
    """All parameters in one buffer, as those who exchange or update them at once lay them out."""
    parameters = list(model.parameters())
    buffer, begin = torch.cat([p.detach().flatten() for p in parameters] + [torch.zeros(5)]), 0
    for parameter in parameters:
        parameter.data = buffer[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()


def run(
    server: str,
    name: str,
    build: Callable[[], nn.Module],
    lay_out: Edit,
    optimizer_of: Callable[..., torch.optim.Optimizer],
    parts: int = 1,
    reference: str | None = None,
    edit: Edit = as_it_is,
    **watched: object,
) -> list[plumbline.Verdict]:
    torch.manual_seed(0)
    model = build()
    data = [
        (torch.randn(8, 32) if build is layers else torch.randn(8, 3, 8, 8), torch.randint(10, (8,)))
        for _ in range(STEPS)
    ]
    lay_out(model)
    optimizer = optimizer_of(model.parameters())
    audit = plumbline.watch(
        model, optimizer, server, job="layouts", run=name, every=1, reference=reference, keep_trace=True, **watched
    )
    for x, y in data:
        with audit.step():
            for inputs, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (F.cross_entropy(model(inputs), labels) / parts).backward()
            with torch.no_grad():
                edit(model)
            optimizer.step()
            optimizer.zero_grad()
        assert audit.flush(60)
    audit.close()
    assert not audit.errors()
    return audit.verdicts()


def sgd(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adamw(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


@pytest.mark.parametrize("optimizer_of", [sgd, adamw])
@pytest.mark.parametrize(
    ("build", "lay_out", "parts"),
    [(images, channels_last, 1), (noisy_images, channels_last, 1), (layers, transposed, 2), (layers, flat, 2)],
)
def test_a_layout_is_no_mathematics(
    server: str,
    build: Callable[[], nn.Module],
    lay_out: Edit,
    parts: int,
    optimizer_of: Callable[..., torch.optim.Optimizer],
) -> None:
    name = f"{build.__name__}-{lay_out.__name__}-{optimizer_of.__name__}"
    run(server, f"{name}-rows", build, as_it_is, optimizer_of)
    verdicts = run(server, name, build, lay_out, optimizer_of, parts, reference=f"{name}-rows")
    assert [v.verdict for v in verdicts] == ["TYPE_I"] * STEPS
    assert not [note for v in verdicts for note in v.notes if "no counterpart" in note]
    assert all(v.math_resolution < 1e-9 for v in verdicts)
    # And the other way round.
    run(server, f"{name}-theirs", build, lay_out, optimizer_of)
    verdicts = run(server, f"{name}-back", build, as_it_is, optimizer_of, parts, reference=f"{name}-theirs")
    assert [v.verdict for v in verdicts] == ["TYPE_I"] * STEPS


def test_an_element_of_a_gradient_is_missed_in_no_layout(server: str) -> None:
    def one_element(model: nn.Module) -> None:
        model[0].weight.grad[5, 1, 1, 2] *= 1.0001

    run(server, "rows", images, as_it_is, sgd)
    for verdict in run(server, "edited", images, channels_last, sgd, reference="rows", edit=one_element):
        assert (verdict.verdict, verdict.grade) == ("TYPE_II", "PROVEN"), verdict.explain()


def test_a_part_of_a_model_has_no_counterpart_of_another_layout(server: str) -> None:
    """Its storages are captured as they lie."""
    run(server, "part-rows", images, as_it_is, sgd, scope="0")
    verdicts = run(server, "part", images, channels_last, sgd, reference="part-rows", scope="0")
    assert all(v.verdict != "TYPE_II" for v in verdicts)
    again = run(server, "part-again", images, channels_last, sgd, reference="part", scope="0")
    assert [v.verdict for v in again] == ["TYPE_I"] * STEPS
