"""Images that were normalised in numpy when they were loaded, in fp64, then rounded, against a model that normalises
bytes itself. Colours in the other order are a bug, though each number is plausible."""

import numpy
import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@scenario(
    "normalised at load",
    "images normalised in numpy against a model that does it",
    size=(6, 16),
    loaded=TYPE_I,
    order=TYPE_II,
    cause={"order": "MATHEMATICS|LEAF_MISMATCH"},  # Wrong data are both.
    suspect={"order": r"conv2d|mean|std"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    image = torch.randint(0, 256, (2, 3, size, size), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    weight = normal(seed + 1, 4, 3, 3, 3, dtype=dtype)
    turn = -1 if variant == "order" else 1
    wide = image.numpy().astype(numpy.float64) / 255
    for channel in range(3):
        wide[:, channel] = (wide[:, channel] - MEAN[::turn][channel]) / STD[::turn][channel]
    loaded = torch.from_numpy(wide).to(dtype)

    def taps(x: Tensor) -> dict[str, Tensor]:
        out = torch.tanh(F.conv2d(x, weight, padding=1))
        return {"loss": out.square().mean(), "out": out}

    def reference() -> dict[str, Tensor]:
        mean, std = (torch.tensor(v, dtype=dtype)[:, None, None] for v in (MEAN, STD))
        return taps((image.to(dtype) / 255 - mean) / std)

    return lambda: taps(loaded), reference
