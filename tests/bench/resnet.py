"""A residual network for images of torch.nn, after He et al. 2015: convolutions, batch norm, bottlenecks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Convolution(nn.Conv2d):
    """Without a bias; takes the batch in so many parts."""

    parts = 1

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, kernel // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.parts == 1:
            return super().forward(x)
        return torch.cat([super(Convolution, self).forward(part) for part in x.chunk(self.parts)])


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.reduce, self.spread = Convolution(inputs, width, 1), Convolution(width, outputs, 1)
        self.mix = Convolution(width, width, 3, stride)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for channels in (width, width, outputs))
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(Convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.reduce(x)))
        y = F.relu(self.norms[1](self.mix(y)))
        y = self.norms[2](self.spread(y))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    def __init__(self, depths: list[int], width: int, classes: int) -> None:
        super().__init__()
        self.stem, self.norm = Convolution(3, width, 7, 2), nn.BatchNorm2d(width)
        blocks, inputs = [], width
        for stage, depth in enumerate(depths):
            for block in range(depth):
                blocks.append(Bottleneck(inputs, width << stage, 2 if stage > 0 and block == 0 else 1))
                inputs = 4 * (width << stage)
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(images))), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


def set_parts(model: nn.Module, parts: int) -> None:
    """How many parts of the batch each convolution takes: batch norm sees it whole, so the mathematics stays."""
    for module in model.modules():
        if isinstance(module, Convolution):
            module.parts = parts


RESNET_50 = {"depths": [3, 4, 6, 3], "width": 64, "classes": 1000}
RESNET_SMALL = {"depths": [1, 1], "width": 16, "classes": 10}
