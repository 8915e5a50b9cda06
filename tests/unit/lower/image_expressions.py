"""Operations on images and sequences with their gradients: pooling, interpolation, convolutions, normalisations,
choices, recurrent layers."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Expression = Callable[[], dict[str, Tensor]]


def differentiated(function: Callable[[], Tensor], *inputs: Tensor) -> Expression:
    def run() -> dict[str, Tensor]:
        out = function()
        weights = torch.linspace(0.5, 1.5, out.numel(), dtype=torch.float64).to(out.dtype).view(out.shape)
        gradients = torch.autograd.grad(out, inputs, weights)
        return {"out": out.detach()} | {f"d{i}": gradient for i, gradient in enumerate(gradients)}

    return run


def image_expressions(dtype: torch.dtype = torch.float64, seed: int = 3) -> dict[str, Expression]:
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw).to(dtype).requires_grad_()

    x, y, volume, line = normal(2, 4, 6, 7), normal(4, 3, 3, 2), normal(1, 2, 4, 5, 6), normal(2, 3, 9)
    weight, bias, far = normal(4), normal(4), (normal(2, 4, 6, 7) + 50).detach().requires_grad_()
    rows, experts, scale = normal(10, 8), normal(3, 8, 16), normal(9)

    def up(source: Tensor, mode: str, **options: object) -> Callable[[], Tensor]:
        return lambda: F.interpolate(source, mode=mode, **options)  # type: ignore[arg-type]

    grid = (1.3 * normal(2, 3, 5, 2)).detach().requires_grad_()

    def sampled(mode: str, padding: str, corners: bool) -> Callable[[], Tensor]:
        return lambda: F.grid_sample(x, grid, mode, padding, corners)

    position = torch.tensor([3, 0, 2])
    functions: dict[str, tuple[Callable[[], Tensor], list[Tensor]]] = {
        "max-pool": (lambda: F.max_pool2d(x, 3, 2, 1), [x]),
        "max-pool-ceil": (lambda: F.max_pool2d(x, (2, 3), (3, 2), (1, 0), dilation=(1, 2), ceil_mode=True), [x]),
        "max-pool-unbatched": (lambda: F.max_pool2d(x[0], 2), [x]),
        "max-pool-1d": (lambda: F.max_pool1d(line, 2), [line]),
        "max-pool-3d": (lambda: F.max_pool3d(volume, 2), [volume]),
        "avg-pool": (lambda: F.avg_pool2d(x, 3, 2, 1), [x]),
        "avg-pool-ceil": (lambda: F.avg_pool2d(x, (2, 3), 2, (1, 0), ceil_mode=True, count_include_pad=False), [x]),
        "avg-pool-divisor": (lambda: F.avg_pool2d(x, 2, divisor_override=3), [x]),
        "avg-pool-1d": (lambda: F.avg_pool1d(line, 3), [line]),
        "avg-pool-3d": (lambda: F.avg_pool3d(volume, 2), [volume]),
        "adaptive-avg": (lambda: F.adaptive_avg_pool2d(x, (4, 3)), [x]),
        "adaptive-avg-3d": (lambda: F.adaptive_avg_pool3d(volume, (2, 2, 4)), [volume]),
        "adaptive-max": (lambda: F.adaptive_max_pool2d(x, (4, 3)), [x]),
        "adaptive-max-3d": (lambda: F.adaptive_max_pool3d(volume, (2, 2, 4)), [volume]),
        "nearest": (up(x, "nearest", scale_factor=2), [x]),
        "nearest-odd": (up(x, "nearest", size=(11, 5)), [x]),
        "nearest-exact": (up(x, "nearest-exact", size=(11, 5)), [x]),
        "nearest-1d": (up(line, "nearest", scale_factor=1.5), [line]),
        "nearest-3d": (up(volume, "nearest", scale_factor=2), [volume]),
        "nearest-exact-1d": (up(line, "nearest-exact", size=4), [line]),
        "nearest-exact-3d": (up(volume, "nearest-exact", size=(3, 7, 6)), [volume]),
        "linear": (up(line, "linear", size=20), [line]),
        "bilinear": (up(x, "bilinear", scale_factor=2), [x]),
        "bilinear-down": (up(x, "bilinear", scale_factor=(0.6, 1.7)), [x]),
        "bilinear-corners": (up(x, "bilinear", size=(9, 1), align_corners=True), [x]),
        "bicubic": (up(x, "bicubic", scale_factor=2), [x]),
        "bicubic-down": (up(x, "bicubic", size=(4, 9)), [x]),
        "bicubic-corners": (up(x, "bicubic", size=(9, 1), align_corners=True), [x]),
        **{
            f"grid-{mode}-{padding}-{corners}": (sampled(mode, padding, corners), [x, grid])
            for mode in ("bilinear", "nearest")
            for padding in ("zeros", "border", "reflection")
            for corners in (False, True)
        },
        "reflection-pad": (lambda: F.pad(x, (2, 1, 0, 3), "reflect"), [x]),
        "reflection-pad-1d": (lambda: F.pad(line, (4, 5), "reflect"), [line]),
        "reflection-pad-3d": (lambda: F.pad(volume, (1, 1, 2, 0, 1, 2), "reflect"), [volume]),
        "replication-pad": (lambda: F.pad(x[0], (2, 1, 0, 3), "replicate"), [x]),
        "replication-pad-1d": (lambda: F.pad(line, (9, 10), "replicate"), [line]),
        "replication-pad-3d": (lambda: F.pad(volume, (1, 1, 2, 0, 1, 2), "replicate"), [volume]),
        "unfold": (lambda: F.unfold(x, (2, 3), dilation=(2, 1), padding=1, stride=(1, 2)), [x]),
        "fold": (lambda: F.fold(line[..., :8].reshape(1, 12, 4), (4, 3), (3, 2), padding=(0, 0)), [line]),
        "trilinear": (up(volume, "trilinear", size=(3, 10, 6)), [volume]),
        "transposed": (lambda: F.conv_transpose2d(x, y, weight[:3], 2, 1, 1), [x, y, weight]),
        "transposed-groups": (
            lambda: F.conv_transpose2d(x, y, None, (3, 1), (0, 2), (1, 0), groups=2, dilation=(1, 2)),
            [x, y],
        ),
        # output_padding beyond the stride, which a dilation allows.
        "transposed-padded": (
            lambda: F.conv_transpose2d(x, y, weight[:3], (3, 2), (1, 2), (2, 3), dilation=4),
            [x, y, weight],
        ),
        "transposed-1d": (lambda: F.conv_transpose1d(line, y[:3, :, :, 0], None, 2), [line, y]),
        "group-norm": (lambda: F.group_norm(x, 2, weight, bias), [x, weight, bias]),
        "group-norm-far": (lambda: F.group_norm(far, 2), [far]),
        "batch-norm-far": (lambda: F.batch_norm(far, None, None, weight, bias, True), [far, weight, bias]),
        "batch-norm-eval": (
            lambda: F.batch_norm(far, weight.detach() + 40, bias.detach().abs(), weight),
            [far, weight],
        ),
        # What is not contiguous in memory, kernels compute otherwise.
        **{
            f"batch-norm-turned-{training}": (
                lambda training=training: F.batch_norm(
                    far.transpose(2, 3), weight.detach() + 40, bias.detach().abs() + 0.3, weight, bias, training
                ),
                [far, weight, bias],
            )
            for training in (False, True)
        },
        **{
            f"batch-norm-turned-lines-{training}": (
                lambda training=training: F.batch_norm(
                    line.transpose(1, 2), scale.detach() * 2, scale.detach().abs() + 0.3, scale, None, training
                ),
                [line, scale],
            )
            for training in (False, True)
        },
        "mish": (lambda: F.mish(x * 3), [x]),
        "topk": (lambda: x.topk(2, 1).values * x[:, :2].topk(3, -1, largest=False).values.sum(-1, True), [x]),
        "sort": (lambda: x.sort(1, descending=True).values + x.sort(dim=2, stable=True).values, [x]),
        "scatter": (lambda: line.scatter(2, position.expand(2, 3, 3), x[:, :3, 0, :3]), [line, x]),
        "index-put": (lambda: line.index_put((torch.tensor([[1], [0]]), position % 3), x[:, :3, 0, 0].T[0, 0]), [x]),
        "grouped": (lambda: F.grouped_mm(rows, experts, offs=torch.tensor([4, 4, 10]).int()), [rows, experts]),
    }
    expressions = {name: differentiated(function, *inputs) for name, (function, inputs) in functions.items()}
    expressions["histogram"] = lambda: {
        "out": torch.histc(line.detach(), 5, -1, 1) + torch.histc(torch.arange(5).to(dtype), 5, 0, 4),
        "own range": torch.histc(line.detach(), 4) + torch.histc(torch.ones(3, dtype=dtype), 4),
        "of nothing": torch.histc(line.detach()[:0], 4) + 1,
    }
    if dtype == torch.float64:
        del expressions["grouped"]  # Not for fp64.
    else:
        for backwards in (False, True):
            layer = nn.LSTM(3, 5, bidirectional=backwards).to(dtype)
            sequence = line.permute(2, 0, 1)
            expressions[f"lstm-{backwards}"] = differentiated(
                lambda layer=layer, sequence=sequence: (
                    torch.cat([layer(sequence)[0], *layer(sequence)[1]], 0)
                    if not layer.bidirectional
                    else layer(sequence)[0]
                ),
                line,
                *layer.parameters(),
            )
    return expressions
