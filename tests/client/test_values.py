"""Bare reference values: what the reference's tensors alone can tell, and what they cannot."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline


def network(eps: float = 1e-5) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32, eps=eps), nn.GELU(), nn.Linear(32, 4))


def taps(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return {"loss": loss.detach(), **{f"grad:{name}": p.grad.clone() for name, p in model.named_parameters()}}


X, Y = torch.randn(24, 16, generator=torch.Generator().manual_seed(5)), torch.arange(24) % 4


def judged(target: nn.Module, values: dict[str, Tensor], server: str) -> "plumbline.Verdict":
    return plumbline.compare(lambda: taps(target, X, Y), values, server=server)


def test_another_order_is_rounding_and_another_constant_is_not(server: str) -> None:
    order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
    same = judged(network(), taps(network(), X[order], Y[order]), server)
    assert same.verdict == "TYPE_I" and same.grade in ("STATISTICAL", "FIRST_ORDER"), same.explain()
    other = judged(network(eps=1.2e-4), taps(network(), X, Y), server)
    assert other.verdict == "TYPE_II" and other.grade in ("STATISTICAL", "FIRST_ORDER"), other.explain()


def test_one_element_is_found_beside_a_million_that_are_right(server: str) -> None:
    x = torch.randn(1024, 256, generator=torch.Generator().manual_seed(2))
    values = {"y": x.exp()}
    values["y"][700, 31] *= 1 + 1e-4
    verdict = plumbline.compare(lambda: {"y": x.exp()}, values, server=server)
    assert verdict.verdict == "TYPE_II" and "element" in verdict.sentence, verdict.explain()


def test_a_common_factor_below_the_roundings_of_elements_is_found(server: str) -> None:
    a, b = torch.randn(2, 512, 512, generator=torch.Generator().manual_seed(2))
    values = {"y": ((a.double() + b.double()) * (1 + 2e-8)).float()}
    verdict = plumbline.compare(lambda: {"y": a + b}, values, server=server)
    assert verdict.verdict == "TYPE_II" and "common factor" in verdict.sentence, verdict.explain()


def test_a_step_of_an_optimizer_is_compared_too(server: str) -> None:
    start = network()

    def stepped(lr: float) -> dict[str, Tensor]:
        model = copy.deepcopy(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        return {name: p.detach().clone() for name, p in model.named_parameters()}

    assert plumbline.compare(lambda: stepped(0.1), stepped(0.1), server=server).verdict == "TYPE_I"
    assert plumbline.compare(lambda: stepped(0.1), stepped(0.1001), server=server).verdict == "TYPE_II"


def test_infinities_are_compared_by_their_places(server: str) -> None:
    scores = torch.randn(6, 6, generator=torch.Generator().manual_seed(2))
    masked = scores.masked_fill(torch.ones(6, 6).triu(1) > 0, -torch.inf)
    assert plumbline.compare(lambda: {"s": masked * 0.3}, {"s": masked * 0.3}, server=server).verdict == "TYPE_I"
    moved = (masked * 0.3).clone()
    moved[0, 1] = 0.25
    assert plumbline.compare(lambda: {"s": masked * 0.3}, {"s": moved}, server=server).verdict == "TYPE_II"
    assert plumbline.compare(lambda: {"s": masked * 0.3}, {"s": masked * 0.301}, server=server).verdict == "TYPE_II"


def test_draws_that_nothing_confirms_are_not_answered(server: str) -> None:
    x = torch.ones(64, 64)
    torch.manual_seed(1)
    other = {"y": F.dropout(x, 0.5)}
    verdict = plumbline.compare(lambda: {"y": F.dropout(x, 0.5)}, other, server=server)
    assert verdict.verdict == "INCONCLUSIVE" and "random numbers" in verdict.sentence, verdict.explain()


def test_draws_that_another_tap_confirms_are_the_references_too(server: str) -> None:
    def taps(scale: float) -> dict[str, Tensor]:
        torch.manual_seed(1)
        y = F.dropout(torch.ones(64, 64), 0.5)
        return {"y": y, "z": y * scale}

    verdict = plumbline.compare(lambda: taps(0.3), taps(0.31), server=server)
    assert verdict.verdict == "TYPE_II", verdict.explain()


def test_a_reference_in_fp32_is_no_bug_beside_a_target_in_fp64(server: str) -> None:
    x = torch.randn(300, generator=torch.Generator().manual_seed(3)) * 4
    narrow = {"y": (x.sin() * 3 - x.exp()).tanh()}
    wide = x.double()
    verdict = plumbline.compare(lambda: {"y": (wide.sin() * 3 - wide.exp()).tanh()}, narrow, server=server)
    assert verdict.verdict != "TYPE_II", verdict.explain()


def test_decisions_at_a_tie_are_no_bug(server: str) -> None:
    x = torch.tensor([0.5, 1.5, 2.25, -2.5])
    upwards = {"y": torch.floor(x + 0.5) * 0.1}
    verdict = plumbline.compare(lambda: {"y": torch.round(x * 1.0) * 0.1}, upwards, server=server)
    assert verdict.verdict == "INCONCLUSIVE" and "near a tie" in verdict.sentence, verdict.explain()


def test_parameters_that_went_through_bf16_are_a_policy(server: str) -> None:
    narrow = network()
    with torch.no_grad():
        for p in narrow.parameters():
            p.copy_(p.bfloat16())
    verdict = judged(network(), taps(narrow, X, Y), server)
    assert (verdict.verdict, verdict.cause) == ("TYPE_I", "PRECISION_POLICY"), verdict.explain()
    assert "went through bf16" in verdict.sentence


def test_a_gradient_that_the_target_lacks_counts_as_zero(server: str) -> None:
    def cut() -> dict[str, Tensor]:
        found = taps(network(), X, Y)
        del found["grad:0.weight"]
        return found

    values = taps(network(), X, Y)
    verdict = plumbline.compare(cut, values, server=server)
    assert verdict.verdict == "TYPE_II" and "grad:0.weight" in verdict.sentence, verdict.explain()
    values["grad:0.weight"].zero_()
    assert plumbline.compare(cut, values, server=server).verdict == "TYPE_I"


def test_what_lies_a_hundredth_off_is_answered_however_wide_the_envelope(server: str) -> None:
    """Rounding could hide a bug ten times as large as what is left of it, but hardly does (values.cc)."""
    a, b = torch.randn(8, 512, generator=torch.Generator().manual_seed(1)), torch.linspace(-0.1, 0.1, 512)

    def chaotic() -> dict[str, Tensor]:
        y = (a @ b).sigmoid()
        for _ in range(14):  # Each doubles what roundings did before.
            y = 3.99 * y * (1 - y)
        return {"y": y}

    exact = {"y": chaotic_in_double(a, b)}
    near, far = (
        plumbline.compare(chaotic, {"y": exact["y"] * (1 + off)}, server=server, capture="outputs")
        for off in (0.005, 0.05)
    )
    assert near.verdict == "TYPE_I" and near.grade == "STATISTICAL", near.explain()
    assert far.verdict == "INCONCLUSIVE", far.explain()


def chaotic_in_double(a: Tensor, b: Tensor) -> Tensor:
    y = (a.double() @ b.double()).sigmoid()
    for _ in range(14):
        y = 3.99 * y * (1 - y)
    return y.float()
