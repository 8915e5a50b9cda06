"""transformers 33844: dropout stays active in evaluation."""

import copy

import torch
import torch.nn.functional as F
from models import MLP, normal
from scenario import TYPE_I, TYPE_II, Program, scenario


@scenario(
    "transformers 33844",
    "dropout active in evaluation",
    size=(8, 32),
    bug=TYPE_II,
    fixed=TYPE_I,
    suspect={"bug": r"F\.dropout"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    mine = MLP(16).to(dtype).eval()
    theirs = copy.deepcopy(mine)
    x = normal(seed, size, 16, dtype=dtype)

    def evaluate(model: MLP, training: bool) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        with torch.no_grad():
            y = model.fc_2(F.dropout(F.relu(model.fc_1(x)), 0.1, training=training))
        return {"loss": y.square().mean(), "logits": y}

    return lambda: evaluate(mine, variant == "bug"), lambda: evaluate(theirs, False)
