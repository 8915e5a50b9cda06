"""A10. Training in 16-bit fixed point <IL,FL>, rounded to nearest or stochastically: products gather in a wide
accumulator and are converted once. Against fp32 both are rounding, stochastic rounding twice as much; values beyond the
range saturate; under rounding to nearest small updates stagnate. A conversion that forgets its scale is a bug."""

import copy
from typing import Any

import torch
from models import MLP, hazards, normal
from scenario import TYPE_I, TYPE_II, Program, scenario

BITS = 16
ENVELOPES: dict[str, float] = {}


def quantise(x: torch.Tensor, fraction: int, stochastic: bool) -> torch.Tensor:
    """To <16 - fraction, fraction>; gradients pass straight through."""
    scaled = x.detach() * 2.0**fraction
    code = torch.floor(scaled + torch.rand_like(scaled)) if stochastic else torch.round(scaled)
    value = code.clamp(-(2.0 ** (BITS - 1)), 2.0 ** (BITS - 1) - 1) / 2.0**fraction
    return x + (value - x).detach()


def says(variant: str, verdict: Any) -> None:
    found = hazards(verdict)
    assert ("saturation" in found) == (variant == "saturating"), verdict.explain()
    assert ("stagnation" in found) == (variant == "stagnating"), verdict.explain()
    if variant in ("nearest", "stochastic"):  # The first case of both has one size and seed.
        ENVELOPES.setdefault(variant, verdict.taps["loss"].math_resolution)
    if len(ENVELOPES) == 2:
        assert 1.5 < ENVELOPES["stochastic"] / ENVELOPES["nearest"] < 2.5, ENVELOPES


@scenario(
    "A10 fixed point",
    "a step in 16-bit fixed point against fp32, and against the same in another order",
    size=(8, 16),
    says=says,
    nearest=TYPE_I,
    stochastic=TYPE_I,
    another_order=TYPE_I,
    saturating=TYPE_I,
    stagnating=TYPE_I,
    no_scale=TYPE_II,
    cause={"nearest": "PRECISION_POLICY", "stochastic": "PRECISION_POLICY"},
    # Where it is scaled twice, or the conversion before, whose scale stands for both.
    suspect={"no_scale": r"new \* 2\.0|detach\(\) \* 2\.0"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    fraction = 12 if variant != "saturating" else 14
    rate = 1e-5 if variant == "stagnating" else 0.1
    plain = MLP(16).to(dtype)
    with torch.no_grad():
        for p in plain.parameters():
            p.copy_(torch.round(p * 2.0**fraction) / 2.0**fraction)
    fixed = copy.deepcopy(plain)
    magnitude = 6.0 if variant == "saturating" else 1.0
    x, y = normal(seed, size, 16, dtype=dtype) * magnitude, normal(seed + 1, size, 8, dtype=dtype)
    stochastic = variant == "stochastic"

    def forward(model: MLP, x: torch.Tensor, quantised: bool, reverse: bool = False) -> torch.Tensor:
        def converted(v: torch.Tensor) -> torch.Tensor:
            return quantise(v, fraction, stochastic) if quantised else v

        x, weight = converted(x), model.fc_1.weight
        if reverse:  # The wide accumulator in another order.
            x, weight = x.flip(1), weight.flip(1)
        hidden = torch.relu(converted(torch.nn.functional.linear(x, weight, model.fc_1.bias)))
        return converted(model.fc_2(hidden))

    def step(model: MLP, quantised: bool, reverse: bool = False) -> dict[str, torch.Tensor]:
        loss = (forward(model, x, quantised, reverse) - y).square().mean()
        loss.backward()
        taps = {"loss": loss.detach()}
        with torch.no_grad():
            for name, p in model.named_parameters():
                new = p - rate * p.grad
                if quantised:
                    new = quantise(new, fraction, stochastic)
                if variant == "no_scale" and quantised and name == "fc_2.weight":
                    new = new * 2.0
                p.copy_(new)
                taps[f"weight:{name}"] = p.detach()
        return taps

    reference_quantised = variant in ("another_order", "saturating", "stagnating", "no_scale")
    reverse = variant in ("another_order", "saturating")
    return lambda: step(fixed, True), lambda: step(plain, reference_quantised and variant != "no_scale", reverse)
