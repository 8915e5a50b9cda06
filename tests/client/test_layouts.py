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
    buffer, begin = torch.cat([p.detach().flatten() for p in parameters] + [parameters[0].new_zeros(5)]), 0
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
    prepare: Callable[[nn.Module, torch.optim.Optimizer], dict[str, Tensor]] | None = None,
    after: Callable[[nn.Module, dict[str, Tensor]], None] | None = None,
    between: Edit = as_it_is,
    **watched: object,
) -> list[plumbline.Verdict]:
    """`prepare`: gives state of the user's, which `after` writes in each step; `between`: after the first one."""
    torch.manual_seed(0)
    model = build()
    data = [
        (torch.randn(8, 3, 8, 8) if build in (images, noisy_images) else torch.randn(8, 32), torch.randint(10, (8,)))
        for _ in range(STEPS)
    ]
    lay_out(model)
    optimizer = optimizer_of(model.parameters())
    state = {} if prepare is None else prepare(model, optimizer)
    audit = plumbline.watch(
        model, optimizer, server, job="layouts", run=name, every=1, reference=reference, keep_trace=True, **watched
    )
    if state:
        audit.state("kept", state)
    for x, y in data:
        with audit.step():
            for inputs, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (F.cross_entropy(model(inputs), labels) / parts).backward()
            with torch.no_grad():
                edit(model)
            optimizer.step()
            if after is not None:
                with torch.no_grad():
                    after(model, state)
            optimizer.zero_grad()
        assert audit.flush(60)
        if y is data[0][1]:
            with torch.no_grad():
                between(model)
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


class Narrowed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.bfloat16()


def narrow_layers() -> nn.Module:
    """All in 16 bits, of which results are captured."""
    return nn.Sequential(Narrowed(), *layers().bfloat16())


@pytest.mark.parametrize(
    ("build", "lay_out", "watched"),
    [
        (narrow_layers, transposed, {}),
        (narrow_layers, flat, {}),
        (layers, transposed, {"capture": "outputs"}),
        (images, channels_last, {"capture": "outputs"}),
    ],
)
def test_what_a_layout_is_made_of_is_no_result_of_the_program(
    server: str, build: Callable[[], nn.Module], lay_out: Edit, watched: dict[str, str]
) -> None:
    name = f"captured-{build.__name__}-{lay_out.__name__}"
    verdicts = run(server, name, build, lay_out, sgd, **watched)
    assert [v.verdict for v in verdicts] == ["TYPE_I"] * STEPS, [v.explain() for v in verdicts]


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


def turned(tensor: Tensor) -> Tensor:
    """The same elements, in columns."""
    return tensor.t().contiguous().t() if tensor.dim() == 2 else tensor


@pytest.mark.parametrize(("decay", "verdict"), [(0.1, "TYPE_I"), (0.1001, "TYPE_II")])
def test_state_of_the_user_s_in_another_layout_is_compared(server: str, decay: float, verdict: str) -> None:
    def average(by: float) -> Callable[[nn.Module, dict[str, Tensor]], None]:
        def after(model: nn.Module, state: dict[str, Tensor]) -> None:
            for name, parameter in model.named_parameters():
                state[name].lerp_(parameter, by)

        return after

    def rows(model: nn.Module, _: torch.optim.Optimizer) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def columns(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        return {name: turned(tensor) for name, tensor in rows(model, optimizer).items()}

    name = f"average-{decay}"
    run(server, name, layers, as_it_is, sgd, prepare=rows, after=average(0.1))
    for lay_out in (rows, columns):
        verdicts = run(
            server, f"{name}-{lay_out.__name__}", layers, as_it_is, sgd, 2, name,
            prepare=lay_out, after=average(decay),
        )  # fmt: skip
        assert [v.verdict for v in verdicts] == [verdict] * STEPS, [v.explain() for v in verdicts]


def test_parameters_and_their_momentum_may_share_a_buffer(server: str) -> None:
    def one_buffer(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        F.cross_entropy(model(torch.ones(4, 32)), torch.zeros(4, dtype=torch.long)).backward()
        optimizer.step()
        optimizer.zero_grad()
        parameters = list(model.parameters())
        momenta = [optimizer.state[p]["momentum_buffer"] for p in parameters]
        buffer, begin = torch.cat([t.detach().flatten() for t in parameters + momenta]), 0
        views = []
        for tensor in parameters + momenta:
            views.append(buffer[begin : begin + tensor.numel()].view_as(tensor))
            begin += tensor.numel()
        for parameter, own, momentum in zip(parameters, views, views[len(parameters) :], strict=False):
            parameter.data, optimizer.state[parameter]["momentum_buffer"] = own, momentum
        return {}

    run(server, "buffer", layers, as_it_is, sgd, prepare=one_buffer)
    verdicts = run(server, "buffer-halves", layers, as_it_is, sgd, 2, "buffer", prepare=one_buffer)
    assert [v.verdict for v in verdicts] == ["TYPE_I"] * STEPS, [v.explain() for v in verdicts]


def foreach(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, foreach=True)


def tie(model: nn.Module) -> None:
    model[2].weight.data = model[0].weight.data


def tie_transposed(model: nn.Module) -> None:
    transposed(model)
    model[2].weight.data = model[0].weight.data.t()


@pytest.mark.parametrize("tied", [tie, tie_transposed])
@pytest.mark.parametrize("optimizer_of", [sgd, foreach])
def test_tied_memory_accuses_nobody(
    server: str, tied: Edit, optimizer_of: Callable[..., torch.optim.Optimizer]
) -> None:
    name = f"{tied.__name__}-{optimizer_of.__name__}"
    first = run(server, name, layers, tied, optimizer_of)
    second = run(server, f"{name}-halves", layers, tied, optimizer_of, 2, name)
    assert not [v.explain() for v in first + second if v.verdict == "TYPE_II"]
    if optimizer_of is sgd:
        assert [v.verdict for v in first + second] == ["TYPE_I"] * 2 * STEPS


@pytest.mark.parametrize("lay_out", [as_it_is, transposed, channels_last])
def test_a_change_between_steps_is_seen_in_every_layout(server: str, lay_out: Edit) -> None:
    def doubled(model: nn.Module) -> None:
        model[0].weight.mul_(2)

    build = images if lay_out is channels_last else layers
    verdicts = run(server, f"between-{lay_out.__name__}", build, lay_out, sgd, between=doubled)
    assert [v.cause for v in verdicts] == ["ROUNDING", "INVARIANT", "ROUNDING"]


def test_bytes_of_two_types_accuse_nobody(server: str) -> None:
    def build() -> nn.Module:
        model = layers()
        model.scale = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
        model.register_forward_hook(lambda module, _, y: y * module.scale.float().mean())
        return model

    def in_bytes(model: nn.Module) -> None:
        buffer, begin = torch.zeros(1 << 15, dtype=torch.uint8), 0
        for parameter in model.parameters():
            size = parameter.numel() * parameter.element_size()
            view = buffer[begin : begin + size].view(parameter.dtype).view(parameter.shape)
            parameter.data = view.copy_(parameter.data)
            begin += (size + 7) // 8 * 8

    run(server, "types", build, as_it_is, sgd)
    verdicts = run(server, "types-in-bytes", build, in_bytes, sgd, reference="types")
    assert not [v.explain() for v in verdicts if v.verdict == "TYPE_II"]
