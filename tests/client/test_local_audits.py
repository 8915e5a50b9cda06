"""Single operations, every result observed: what PyTorch's own kernels give is a legal rounding, whatever they round in
between."""

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import plumbline

Program = Callable[[], dict[str, Tensor]]


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def with_gradients(result: Tensor, *inputs: Tensor) -> dict[str, Tensor]:
    weights = torch.linspace(-1.5, 1.5, result.numel()).view(result.shape).to(result.dtype)
    gradients = torch.autograd.grad(result, inputs, weights)
    return {"y": result.detach()} | {f"g{k}": gradient for k, gradient in enumerate(gradients)}


def convolved(convolution: Callable[..., Tensor], x: Tensor, weight: Tensor, **options: object) -> dict[str, Tensor]:
    inputs = [t.half().requires_grad_() for t in (x, weight)]
    channels = (
        weight.shape[1] * int(options.get("groups", 1)) if "transpose" in convolution.__name__ else weight.shape[0]
    )
    bias = normal(channels, dtype=torch.float16).requires_grad_()
    return with_gradients(convolution(inputs[0], inputs[1], bias, **options), *inputs, bias)


def begun(dtype: torch.dtype) -> dict[str, Tensor]:
    """Products whose sums begin with something far larger: every partial sum is rounded at its size."""
    x, w, far = normal(24, 96, dtype=dtype), normal(96, 40, dtype=dtype), 3000 + normal(40, dtype=dtype)
    images, kernel = normal(2, 6, 9, 8, dtype=dtype), normal(40, 6, 3, 3, dtype=dtype)
    return {
        "linear": F.linear(x, w.mT.contiguous(), far),
        "addmm": torch.addmm(far, x, w),
        "scaled": torch.addmm(far, x, w, beta=0.7, alpha=-0.3),
        "batches": torch.baddbmm(far, x.view(3, 8, 96), w.expand(3, 96, 40), alpha=1.7),
        "vector": torch.addmv(far[:24], x, w[:, 0], alpha=3),
        "convolution": F.conv2d(images, kernel, far),
        "transposed": F.conv_transpose2d(images, kernel[:6], far[:6], groups=1),
    }


def attention(dtype: torch.dtype, keys: int, **options: object) -> dict[str, Tensor]:
    q, k, v = (normal(2, 3, n, 16, dtype=dtype).requires_grad_() for n in (19, keys, keys))
    return with_gradients(F.scaled_dot_product_attention(q, k, v, **options), q, k, v)


def weight_norm(dtype: torch.dtype, *shape: int, dim: int) -> dict[str, Tensor]:
    v = normal(*shape, dtype=dtype).requires_grad_()
    g = torch.linspace(0.5, 2, shape[dim], dtype=dtype).view(
        [-1 if d == dim % len(shape) else 1 for d in range(len(shape))]
    )
    return with_gradients(torch._weight_norm(v, g.requires_grad_(), dim), v, g)


def momentum(dtype: torch.dtype, **options: object) -> dict[str, Tensor]:
    """Of two steps whose factors no 16-bit format holds."""
    weights = [torch.nn.Parameter(normal(*shape, dtype=dtype)) for shape in ((40, 8), (11,))]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.07, **options)
    for _ in range(2):
        for weight in weights:
            weight.grad = normal(*weight.shape, dtype=dtype)
        optimizer.step()
    return {f"w{k}": weight.detach().clone() for k, weight in enumerate(weights)}


PROGRAMS: dict[str, Program] = {
    "weight norm fp32": lambda: weight_norm(torch.float32, 12, 5, 7, dim=0),
    "weight norm bf16": lambda: weight_norm(torch.bfloat16, 30, 17, dim=1),
    # Rows of vectors and their rests, more keys than a block takes.
    "attention fp32": lambda: attention(torch.float32, 33),
    "attention bf16": lambda: attention(torch.bfloat16, 33),
    "attention fp16": lambda: attention(torch.float16, 19, is_causal=True),
    "attention bf16 blocks": lambda: attention(torch.bfloat16, 1100),
    "momentum bf16": lambda: momentum(torch.bfloat16),
    "momentum bf16 foreach": lambda: momentum(torch.bfloat16, foreach=True),
    "momentum fp16 foreach": lambda: momentum(torch.float16, foreach=True),
    "begun fp64": lambda: begun(torch.float64),
    "begun fp32": lambda: begun(torch.float32),
    "begun bf16": lambda: begun(torch.bfloat16),
    "begun fp16": lambda: begun(torch.float16),
    "transposed": lambda: convolved(F.conv_transpose2d, normal(3, 8, 5, 7), normal(8, 6, 3, 3), stride=2),
    "transposed groups": lambda: convolved(F.conv_transpose1d, normal(2, 8, 9), normal(8, 3, 5), groups=4, padding=1),
    "transposed volume": lambda: convolved(F.conv_transpose3d, normal(2, 4, 3, 4, 3), normal(4, 2, 2, 3, 3)),
    "convolution": lambda: convolved(F.conv2d, normal(4, 6, 9, 8), normal(8, 6, 3, 3), padding=1),
    "dilated": lambda: convolved(F.conv1d, normal(5, 4, 40), normal(6, 2, 3), dilation=2, stride=3, groups=2),
    # Elements on the ends of parts, and a part that has more of them than its format can count.
    "histogram fp32": lambda: {"y": torch.histc(torch.arange(1001) / 1000, 1000, 0, 1)},
    "histogram bf16": lambda: {"y": torch.histc((torch.arange(-40, 41) / 20).bfloat16(), 40, -2, 2)},
    "histogram fp16": lambda: {"y": torch.histc(normal(9000).half(), 3, -9, 9)},
    "histogram of experts": lambda: {"y": torch.histc(torch.arange(600).float() % 6, 6, 0, 5)},
    # The borders are copied before they are written.
    "circular": lambda: {"y": F.pad(normal(2, 3, 5, 4), (2, 1, 3, 2), mode="circular") * 2},
    "circular gradient": lambda: with_gradients(F.pad(x := normal(1, 2, 6).requires_grad_(), (2, 3), "circular"), x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_are_not_accused(server: str, name: str) -> None:
    alone = plumbline.compare(PROGRAMS[name], None, server=server, capture="outputs")
    assert alone.verdict != "TYPE_II", alone.explain()
    paired = plumbline.compare(PROGRAMS[name], PROGRAMS[name], server=server, capture="outputs")
    assert paired.verdict != "TYPE_II", paired.explain()
    assert not paired.coverage.opaque, paired.coverage


Results = Tensor | tuple[Tensor, ...]

# On x and y [n, 40], forward and backward, of 16-bit formats too: what their kernels round on the way. n is below the
# length of a vector and above.
NARROW: dict[str, Callable[[Tensor, Tensor], Results]] = {
    "add": lambda x, y: x + 0.3,
    "add alpha": lambda x, y: torch.add(x, y, alpha=0.1),
    "add scalar tensor": lambda x, y: x - torch.tensor(0.3),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=-3.3),
    "floor": lambda x, y: torch.div(x * 100, y, rounding_mode="floor").detach(),
    "trunc": lambda x, y: torch.div(x * 9, y, rounding_mode="trunc").detach(),
    "remainder": lambda x, y: torch.remainder(x, y.detach()),
    "pow": lambda x, y: x.abs() ** 0.3,
    "pow in place": lambda x, y: x.detach().clone().pow_(3),
    "softmax": lambda x, y: x.softmax(0) + x.softmax(1),
    "log_softmax": lambda x, y: x.log_softmax(0) + x.log_softmax(1),
    "logsumexp": lambda x, y: x.logsumexp(1),
    "mse": lambda x, y: F.mse_loss(x, y),
    "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid()),
    "bce with logits": lambda x, y: F.binary_cross_entropy_with_logits(
        x, y.detach().sigmoid(), pos_weight=y[0].detach().abs()
    ),
    "logsigmoid": lambda x, y: F.logsigmoid(x),
    "norm of a number": lambda x, y: torch.linalg.vector_norm(x[0, 0], 3) + torch.linalg.vector_norm(x[0, 0], 0),
    "nll of one sample": lambda x, y: F.nll_loss(x[0], torch.tensor(3), y[1].detach(), reduction="none"),
    "addmm": lambda x, y: torch.addmm(y[:4, :4], x[:4], y[:4].T, beta=0.2, alpha=0.6),
    "addmv": lambda x, y: torch.addmv(y[:4, 0], x[:4], y[0], beta=0.2, alpha=0.6),
    "index_add": lambda x, y: (x[:3] * 100).index_add(0, torch.arange(len(y)) % 3, y.abs()),
    "scatter_add": lambda x, y: (x * 100).scatter_add(1, torch.arange(40).expand(len(y), 40) % 3, y.abs()),
    "index_put": lambda x, y: (x[:3] * 100).index_put((torch.arange(len(y)) % 3,), y.abs(), accumulate=True),
    "topk": lambda x, y: x.round().topk(3, 1),
    "atan2": lambda x, y: torch.atan2(x, y),
    "dropout": lambda x, y: torch.native_dropout(x, 0.3, True)[0],
    "masked_scatter": lambda x, y: x.masked_scatter(y > 0.5, y[:, 3:]),
    "masked_select": lambda x, y: x.masked_select(y > 0.5),
    "bag": lambda x, y: F.embedding_bag(
        torch.arange(400).view(10, 40) % len(x), x, mode="sum", per_sample_weights=y[:1].abs().expand(10, 40)
    ),
    "bag mean": lambda x, y: F.embedding_bag(torch.arange(900).view(3, 300) % len(x), x, mode="mean", padding_idx=2),
    "bag mean of a few": lambda x, y: F.embedding_bag(torch.arange(90).view(15, 6) % len(x), x, mode="mean"),
    "bag max": lambda x, y: F.embedding_bag(torch.arange(90).view(15, 6) % len(x), x.round(), mode="max"),
    "grid": lambda x, y: F.grid_sample(x[:5].reshape(1, 5, 5, 8), y[:5].reshape(1, 10, 10, 2), align_corners=True),
    "nearest on a grid": lambda x, y: F.grid_sample(
        x[:5].reshape(5, 1, 5, 8), y[:5].reshape(5, 5, 4, 2), "nearest", "border", align_corners=False
    ),
    "batch_norm": lambda x, y: F.batch_norm(x, m := y[0].detach().clone(), m.abs(), y[1], None, True, 0.3),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_what_kernels_round_on_the_way_is_allowed(server: str, dtype: torch.dtype) -> None:
    def program() -> dict[str, Tensor]:
        taps = {}
        for rows, (name, operation) in itertools.product((5, 64), NARROW.items()):
            x, y = (normal(rows, 40 + k, dtype=dtype)[:, k:].requires_grad_() for k in (0, 1))
            results = operation(x, y)
            first = results if isinstance(results, Tensor) else results[0]
            taps[f"{name} {rows}"] = first.detach()
            if first.requires_grad:
                torch.autograd.grad(first.sum(), (x, y), allow_unused=True)
        return taps

    verdict = plumbline.compare(program, None, server=server, capture="outputs")
    assert verdict.verdict != "TYPE_II" and not verdict.coverage.opaque, verdict.explain()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_inverse_functions_of_every_16_bit_number(server: str, dtype: torch.dtype) -> None:
    numbers = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    finite, inside = numbers[numbers.isfinite()], numbers[numbers.abs() <= 1]

    def program() -> dict[str, Tensor]:
        return {"asin": inside.asin(), "acos": inside.acos(), "atan": finite.atan()}

    verdict = plumbline.compare(program, None, server=server, capture="outputs")
    assert verdict.verdict == "TYPE_I" and verdict.grade == "PROVEN", verdict.explain()


def dirty(*shape: int) -> Tensor:
    """Memory with a past."""
    torch.full(shape, 7e8).mul_(3)
    return torch.empty(*shape)


def test_nothing_depends_on_what_lay_in_memory(server: str) -> None:
    """Rows are written into memory that was taken empty, once in one piece, once in two; one row nobody writes."""

    def program(pieces: int, scale: float = 1.0) -> Program:
        def run() -> dict[str, Tensor]:
            rows, x = dirty(9, 64), normal(8, 64) * scale
            for part in range(pieces):
                low, high = 8 // pieces * part, 8 // pieces * (part + 1)
                rows[low:high].copy_(x[low:high])
            return {"y": (rows[:8] * 0.5).sum(0), "rows": rows[:8].clone()}

        return run

    for capture in ("leaves", "outputs"):
        verdict = plumbline.compare(program(1), program(2), server=server, capture=capture)
        assert verdict.verdict == "TYPE_I" and not verdict.coverage.opaque, verdict.explain()
    bug = plumbline.compare(program(1), program(2, 1.001), server=server)
    assert bug.verdict == "TYPE_II" and bug.cause == "MATHEMATICS", bug.explain()
