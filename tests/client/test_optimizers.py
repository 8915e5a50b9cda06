"""Optimizers that users write: decisions of signs, and one update in several words."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline

RATE, DECAY, BETAS = 1e-3, 0.1, (0.9, 0.99)


def decayed_first(weight: Tensor, gradient: Tensor, momentum: Tensor) -> None:
    direction = (momentum * BETAS[0] + gradient * (1 - BETAS[0])).sign()
    weight.mul_(1 - RATE * DECAY).add_(direction, alpha=-RATE)


def at_once(weight: Tensor, gradient: Tensor, momentum: Tensor) -> None:
    weight.sub_(RATE * (torch.lerp(gradient, momentum, BETAS[0]).sign() + DECAY * weight))


def growing(weight: Tensor, gradient: Tensor, momentum: Tensor) -> None:
    weight.sub_(RATE * (torch.lerp(gradient, momentum, BETAS[0]).sign() - DECAY * weight))


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, update) -> None:
        super().__init__(parameters, {})
        self.update = update

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                self.update(weight, weight.grad, momentum)
                momentum.mul_(BETAS[1]).add_(weight.grad, alpha=1 - BETAS[1])


def verdicts(server: str, update, run: str, reference: str | None = None, parts: int = 1) -> list[plumbline.Verdict]:
    torch.manual_seed(0)
    # Its widest weights are compared in tiles, the others whole.
    model = nn.Sequential(nn.Embedding(50, 96), nn.Linear(96, 256), nn.GELU(), nn.Linear(256, 96), nn.Linear(96, 50))
    optimizer = Lion(model.parameters(), update)
    audit = plumbline.watch(model, optimizer, server, job="lion", run=run, every=1, reference=reference)
    draw = torch.Generator().manual_seed(1)
    for _ in range(2):
        tokens, wanted = (torch.randint(0, 50, (8, 12), generator=draw) for _ in range(2))
        with audit.step():
            for x, y in zip(tokens.chunk(parts), wanted.chunk(parts), strict=True):
                (F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / parts).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert audit.flush(120)
    found = audit.verdicts()
    assert not audit.errors()
    audit.close()
    return found


def test_decisions_of_signs_leave_gradients_to_their_own_envelopes(server: str) -> None:
    for verdict in verdicts(server, decayed_first, "alone"):
        assert verdict.verdict == "TYPE_I", verdict
        assert verdict.coverage.opaque == 0


def test_updates_are_compared_element_by_element(server: str) -> None:
    verdicts(server, decayed_first, "reference")
    for verdict in verdicts(server, at_once, "other_words", "reference", parts=2):
        assert verdict.verdict == "TYPE_I", verdict
        assert 0 < verdict.taps["update:1.weight"].math_resolution < 1e-12
    for verdict in verdicts(server, growing, "bug", "reference"):
        assert verdict.verdict == "TYPE_II", verdict
        assert verdict.cause == "MATHEMATICS"
        assert "test_optimizers.py" in str(verdict.suspect)


@pytest.mark.parametrize("capture", ["leaves", "outputs"])
def test_a_first_momentum_is_the_gradient_itself(server: str, capture: str) -> None:
    """In bf16, where the gradient of a bias comes from one backward call or from two."""

    def trained(run: str, parts: int, **options: object) -> list[plumbline.Verdict]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).bfloat16()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
        options |= {"job": f"momentum-{capture}", "run": run, "every": 1, "capture": capture}
        with plumbline.watch(model, optimizer, server, **options) as audit:
            for step in range(2):
                x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step)).bfloat16()
                with audit.step():
                    for part in x.chunk(parts):
                        (model(part).square().mean() / parts).backward()
                    optimizer.step()
                    optimizer.zero_grad()
            assert audit.flush(), audit.errors()
            return audit.verdicts()

    trained("whole", 1, keep_trace=True)
    for verdict in trained("parts", 2, reference="whole"):
        assert verdict.verdict == "TYPE_I", verdict.explain()
