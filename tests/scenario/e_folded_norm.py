"""A batch norm that was folded into the convolution before it when the model was loaded. The folded weights are leaves
that no operation of the reference computes, and they bear the names of the weights they were made of. Without eps the
fold is a bug, and so is a wrong scale of one channel: each result alone lies within what the roundings of its weights
can make of it, and all together do not."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)))


class Folded(nn.Module):
    def __init__(self, plain: Plain, name: str, eps: float) -> None:
        super().__init__()
        conv, norm = plain.conv, plain.norm
        scale = norm.weight / torch.sqrt(norm.running_var + eps)
        folded = nn.Conv2d(3, 6, 3, padding=1, dtype=conv.weight.dtype)
        with torch.no_grad():
            folded.weight.copy_(conv.weight * scale[:, None, None, None])
            folded.bias.copy_((conv.bias - norm.running_mean) * scale + norm.bias)
        self.add_module(name, folded)
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(getattr(self, self.name)(x))


@scenario(
    "folded norm",
    "a batch norm folded into a convolution when the model was loaded",
    size=(12, 20),
    same_name=TYPE_I,
    other_name=TYPE_I,
    no_eps=TYPE_II,
    scaled=TYPE_II,
    cause=dict.fromkeys(("no_eps", "scaled"), "MATHEMATICS|LEAF_MISMATCH"),  # Wrong weights are both.
    suspect=dict.fromkeys(("no_eps", "scaled"), r"conv|norm"),
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    plain = Plain().eval().to(dtype)
    with torch.no_grad():
        for index, tensor in enumerate((plain.norm.weight, plain.norm.bias, plain.norm.running_mean)):
            tensor.add_(0.3 * normal(seed + index, 6, dtype=dtype))
        plain.norm.running_var.add_(normal(seed + 3, 6, dtype=dtype).square())
    name = "conv" if variant == "same_name" else "fused"
    folded = Folded(plain, name, 0.0 if variant == "no_eps" else plain.norm.eps)
    if variant == "scaled":
        with torch.no_grad():
            getattr(folded, name).weight[2] *= 1 + 2**-18
    x = normal(seed + 4, 8, 3, size, size, dtype=dtype)

    def run(model: nn.Module) -> dict[str, Tensor]:
        with torch.no_grad():
            out = model(x)
            return {"loss": out.square().mean(), "out": out}

    return lambda: run(folded), lambda: run(plain)
