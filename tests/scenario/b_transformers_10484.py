"""transformers 10484: a mask of -1e4 leaks where scores are as large."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "transformers 10484",
    "a mask of -1e4 leaks",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"-1e4"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    scores = normal(seed, 2, size, size, dtype=dtype) * 3
    scores[..., size // 2 :] += 1e4  # Keys that grew; the mask must hide them.
    v = normal(seed + 1, 2, size, 8, dtype=dtype)
    hidden = torch.zeros(size, dtype=torch.bool)
    hidden[size // 2 :] = True

    def attend(masked: torch.Tensor) -> dict[str, torch.Tensor]:
        out = torch.softmax(masked, -1) @ v
        return {"loss": out.square().mean(), "out": out}

    def target() -> dict[str, torch.Tensor]:
        if variant == "bug":
            return attend(scores + hidden.to(dtype) * -1e4)
        return attend(scores.masked_fill(hidden, torch.finfo(dtype).min))

    return target, lambda: attend(scores.masked_fill(hidden, float("-inf")))
