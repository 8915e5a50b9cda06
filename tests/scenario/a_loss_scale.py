"""A4. Loss scales: one that overflows fp16, so that the step is skipped and the scale halves; one that overflows bf16;
none, so that gradients underflow; one that saves them; and a scaler that skips a step without any overflow."""

import copy
from typing import Any

import torch
from models import MLP, hazards, normal, weights
from scenario import TYPE_I, TYPE_II, Program, scenario

SCALE = 65536.0  # Of GradScaler, as it begins.
AUXILIARY = 1e-5  # Weight of a small loss.
RATE = 0.01


def says(variant: str, verdict: Any) -> None:
    found = hazards(verdict)
    if variant == "fp16_overflow":
        assert verdict.taps["scale"].observed == SCALE / 2 and verdict.taps["scale"].outcome == TYPE_I
        assert found["overflow"].place.format == "fp16" and 0 < found["overflow"].share <= 1
        assert "divide the loss scale by 2^" in found["overflow"].remedy
        assert any("skipped its update" in note for note in verdict.notes)
        assert verdict.cause == "PRECISION_POLICY", verdict.explain()
    elif variant == "bf16_overflow":
        assert found["overflow"].place.format == "bf16" and "divide the loss scale" in found["overflow"].remedy
    elif variant == "underflow":
        assert found["underflow"].place.format == "fp16" and found["underflow"].share > 0.5
        assert "multiply the loss scale by 2^" in found["underflow"].remedy
    elif variant == "saved":
        assert not found, verdict.explain()


@scenario(
    "A4 loss scale",
    "overflow, underflow, and the scale that saves",
    size=(8, 24),
    says=says,
    fp16_overflow=TYPE_I,
    bf16_overflow=TYPE_I,
    underflow=TYPE_I,
    saved=TYPE_I,
    skipped=TYPE_II,
    cause={
        "fp16_overflow": "PRECISION_POLICY",
        "bf16_overflow": "PRECISION_POLICY",
        "underflow": "PRECISION_POLICY",
        "saved": "PRECISION_POLICY",
    },
    suspect={"skipped": r"SGD.*step"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    mixed = MLP(16).to(dtype)
    plain = copy.deepcopy(mixed)
    magnitude = 1e18 if variant == "bf16_overflow" else 1.0  # Features that nobody normalised.
    x, y = normal(seed, size, 16, dtype=dtype) * magnitude, normal(seed + 1, size, 8, dtype=dtype)
    short = dtype == torch.float32  # Not for the fp64 oracle.
    scale = 1.0 if variant == "underflow" else SCALE
    rate = RATE / AUXILIARY if variant in ("underflow", "saved") else RATE

    def loss_of(out: torch.Tensor) -> torch.Tensor:
        error = (out - y).square()
        if variant == "fp16_overflow":
            return error.sum()
        return error.mean() if variant in ("bf16_overflow", "skipped") else AUXILIARY * error.mean()

    def target() -> dict[str, torch.Tensor]:
        optimizer = torch.optim.SGD(mixed.parameters(), lr=rate)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        kind = torch.bfloat16 if variant == "bf16_overflow" else torch.float16
        with torch.autocast("cpu", kind, enabled=short):
            out = mixed(x)
        loss = loss_of(out)
        scaled = scaler.scale(loss.to(kind) if variant == "bf16_overflow" else loss)
        scaled.backward()
        scaler.unscale_(optimizer)
        if variant != "skipped":
            scaler.step(optimizer)
        scaler.update()
        return {"loss": loss.detach(), "scale": scaler._scale.clone(), **weights(mixed)}

    def reference() -> dict[str, torch.Tensor]:
        loss = loss_of(plain(x))
        loss.backward()
        torch.optim.SGD(plain.parameters(), lr=rate).step()
        return {"loss": loss.detach(), **weights(plain)}

    return target, reference
