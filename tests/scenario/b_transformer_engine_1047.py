"""TransformerEngine 1047: an fp8 scale comes from the largest value of all micro-batches, but each micro-batch
overwrites the maximum, so that the last alone sets it and the others saturate."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

PARTS, WIDTH, LARGEST = 4, 16, 448.0


@scenario(
    "TransformerEngine 1047",
    "fp8 scale from the last micro-batch",
    size=(4, 16),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"amax"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    short = torch.float8_e4m3fn if dtype == torch.float32 else dtype
    x = normal(seed, PARTS * size, WIDTH, dtype=dtype) * torch.tensor(
        [1.0, 8.0, 3.0, 0.5], dtype=dtype
    ).repeat_interleave(size).unsqueeze(1)
    w = normal(seed + 1, WIDTH, 8, dtype=dtype)

    def quantised(scale: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        return (part * scale).clamp(-LARGEST, LARGEST).to(short).to(dtype) / scale

    def target() -> dict[str, torch.Tensor]:
        amax = torch.zeros((), dtype=dtype)
        for part in x.chunk(PARTS):
            amax = part.abs().amax() if variant == "bug" else torch.maximum(amax, part.abs().amax())
        scale = LARGEST / amax
        out = torch.cat([quantised(scale, part) @ w for part in x.chunk(PARTS)])
        return {"loss": out.square().mean(), "scale": scale}

    def reference() -> dict[str, torch.Tensor]:
        scale = LARGEST / x.abs().amax()
        return {"loss": (quantised(scale, x) @ w).square().mean(), "scale": scale}

    return target, reference
