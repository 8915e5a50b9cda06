"""Operations on images and sequences, for the sweep of all operations."""

import torch
import torch.nn.functional as F
from torch import Tensor


def pooling(x: Tensor) -> list[Tensor]:
    image, volume = x.view(1, 2, 4, 6), x.view(1, 2, 2, 3, 4)
    return [
        F.max_pool2d(image, 3, 2, 1),
        F.max_pool3d(volume, 2),
        F.avg_pool2d(image, 2),
        F.avg_pool3d(volume, 2),
        F.adaptive_avg_pool2d(image, (3, 4)),
        F.adaptive_avg_pool3d(volume, (2, 2, 3)),
        F.adaptive_max_pool2d(image, (3, 4)),
        F.adaptive_max_pool3d(volume, (2, 2, 3)),
    ]


def resampling(x: Tensor) -> list[Tensor]:
    sources = (x.view(2, 3, 8), x.view(1, 2, 4, 6), x.view(1, 2, 2, 3, 4))
    modes = ("nearest", "nearest-exact")
    out = [F.interpolate(source, scale_factor=2, mode=mode) for source in sources for mode in modes]
    for source, mode in zip(sources, ("linear", "bilinear", "trilinear"), strict=True):
        out.append(F.interpolate(source, scale_factor=1.5, mode=mode))
    return [*out, F.grid_sample(sources[1], x.view(1, 4, 6, 2), align_corners=False)]


def convolutions(x: Tensor, y: Tensor) -> list[Tensor]:
    image, line = x.view(1, 2, 4, 6), x.view(1, 6, 8)
    return [
        F.conv1d(line, y.view(4, 3, 4)[:, :, :3], y[0, :4], padding=1, groups=2),
        F.conv2d(image, y.view(3, 2, 2, 4), stride=2, dilation=1),
        F.conv_transpose2d(image, y.view(2, 3, 2, 4), stride=2),
        F.group_norm(image, 1, y[0, :2], y[1, :2]),
        F.mish(x),
    ]


def choices(x: Tensor) -> list[Tensor]:
    return [*x.topk(3, 1), *x.sort(0), *x.sort(1, descending=True), torch.histc(x.detach(), 4, -1, 1)]


def grouped(x: Tensor, y: Tensor) -> Tensor:
    ends = torch.tensor([2, 6], dtype=torch.int32)
    return torch.ops.aten._grouped_mm(x, torch.stack([y[:8, :8].T @ y, y.T @ y]), ends)


def recurrent(x: Tensor, y: Tensor) -> list[Tensor]:
    weight = y.reshape(4, 12)[:, :4].repeat(2, 1)
    h, c = x[:2, :2].reshape(2, 2), x[:2, :2] * 1.0
    biases, bidirectional, batch_first, train = True, False, False, True
    options = (False, [], 2, 2, 1, biases, bidirectional, batch_first, train)
    sequence = x.view(3, 4, 4)[:, :2]
    return list(torch.ops.aten.mkldnn_rnn_layer(sequence, weight, weight[:, :2], x[0], x[1], h, c, *options)[:3])
