"""marin 7659: fp8 state that gradient accumulation carries along: the history of largest values gets the first
micro-batch's alone, and the weights' scale of the next step follows it."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario

PARTS, WIDTH, HISTORY, LARGEST = 4, 16, 8, 448.0


@scenario(
    "marin 7659",
    "fp8 history from the first micro-batch",
    size=(4, 16),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"amax"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, w = normal(seed, PARTS * size, WIDTH, dtype=dtype), normal(seed + 1, WIDTH, 8, dtype=dtype)
    x[-1] *= 4  # An outlier that the first micro-batch does not have.
    history = normal(seed + 2, HISTORY, dtype=dtype).abs()

    def result(weight: torch.Tensor, loss: torch.Tensor, amax: torch.Tensor) -> dict[str, torch.Tensor]:
        rolled = torch.cat([amax.reshape(1), history[:-1]])
        return {"loss": loss, "grad:w": weight.grad, "history": rolled, "scale": LARGEST / rolled.amax()}

    def target() -> dict[str, torch.Tensor]:
        weight = w.clone().requires_grad_()
        loss, largest = torch.zeros((), dtype=dtype), []
        for part in x.chunk(PARTS):
            share = (part @ weight).square().mean() / PARTS
            share.backward()
            loss = loss + share.detach()
            largest.append(part.abs().amax())
        return result(weight, loss, largest[0] if variant == "bug" else torch.stack(largest).amax())

    def reference() -> dict[str, torch.Tensor]:
        weight = w.clone().requires_grad_()
        loss = (x @ weight).square().mean()
        loss.backward()
        return result(weight, loss.detach(), x.abs().amax())

    return target, reference
