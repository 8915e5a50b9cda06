"""Training steps and single expressions whose lowering is checked against what PyTorch computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Step = Callable[[], None]
OptimizerFactory = Callable[[list[Tensor]], torch.optim.Optimizer]


class Block(nn.Module):
    def __init__(self, width: int, heads: int, fused: bool, approximate: str) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.fused, self.approximate = heads, fused, approximate

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).split(width, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
            mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.after(x)), approximate=self.approximate))


class GPT(nn.Module):
    def __init__(self, fused: bool, tied: bool, recompute: bool, approximate: str = "none", width: int = 32) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(48, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList([Block(width, 4, fused, approximate) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 48, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        self.recompute = recompute

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x))


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class LlamaBlock(nn.Module):
    """Rotary positions, grouped heads, gated feed-forward."""

    def __init__(self, width: int, heads: int, own_norm: bool) -> None:
        super().__init__()
        norm = RMSNorm if own_norm else nn.RMSNorm
        self.before, self.after, self.heads = norm(width), norm(width), heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, width // 2, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        inverse = 1.0 / 10000 ** (torch.arange(0, half, dtype=x.dtype) / half)
        angle = torch.outer(torch.arange(x.shape[-2], dtype=x.dtype), inverse)
        cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        y = self.before(x)
        size = width // self.heads
        q, k, v = (p(y).view(batch, length, -1, size).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, own_norm: bool) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(48, 32), nn.Linear(32, 48, bias=False)
        self.blocks = nn.Sequential(*[LlamaBlock(32, 4, own_norm) for _ in range(2)])

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.blocks(self.tokens(tokens)))


class Perceptron(nn.Module):
    def __init__(self, activation: nn.Module, dropout: float = 0.0, batch_norm: bool = False) -> None:
        super().__init__()
        norm = [nn.BatchNorm1d(32)] if batch_norm else []
        self.embedding = nn.Embedding(48, 16)
        self.layers = nn.Sequential(
            nn.Linear(16, 32, bias=not batch_norm),
            *norm,
            activation,
            nn.Dropout(dropout),
            nn.Linear(32, 32),
            activation,
            nn.Linear(32, 48),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layers(self.embedding(tokens).flatten(0, 1)).view(*tokens.shape, 48)


def sgd(**options: object) -> OptimizerFactory:
    return lambda parameters: torch.optim.SGD(parameters, lr=0.05, **options)  # type: ignore[arg-type]


def adamw(**options: object) -> OptimizerFactory:
    return lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, **options)  # type: ignore[arg-type]


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=3)


def shifted_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten(), reduction="sum") / targets.numel()


def smoothed_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    weight = torch.linspace(0.5, 2, 48, dtype=logits.dtype)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), weight, label_smoothing=0.1)


def spatial_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=3)


def masked_mean(logits: Tensor, targets: Tensor) -> Tensor:
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    mask = (targets.flatten() > 5).to(losses.dtype)
    return (losses * mask).sum() / mask.sum().clamp(min=1)


def gathered(logits: Tensor, targets: Tensor) -> Tensor:
    return -logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1).mean()


def mse(logits: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(logits, F.one_hot(targets, 48).to(logits.dtype))


def bce(logits: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, F.one_hot(targets, 48).to(logits.dtype))


def bce_of_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy(logits.sigmoid(), F.one_hot(targets, 48).to(logits.dtype))


@dataclass(frozen=True)
class Program:
    name: str
    model: Callable[[], nn.Module] = lambda: Perceptron(nn.ReLU())
    optimizer: OptimizerFactory = field(default_factory=sgd)
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    after_backward: Callable[[nn.Module], object] | None = None
    accumulate: int = 1
    kinds: tuple[str, ...] = ("fp64", "fp32")
    scaler: bool = False
    init_scale: float = 1024.0


def clip_norm(model: nn.Module) -> Tensor:
    return nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def clip_value(model: nn.Module) -> None:
    nn.utils.clip_grad_value_(model.parameters(), 0.01)


def clip_by_item(model: nn.Module) -> None:
    """A Python number that was read from a tensor."""
    total = torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()
    for parameter in model.parameters():
        parameter.grad.mul_(0.1 / total)


def clip_infinity(model: nn.Module) -> Tensor:
    return nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm_type=math.inf)


ALL = ("fp64", "fp32", "bf16", "autocast", "autocast16")
HALF = (*ALL, "fp16")  # Not for AdamW: its default eps is 0 in fp16.


def gpt(fused: bool = False, tied: bool = True, recompute: bool = False, approximate: str = "none"):
    return lambda: GPT(fused, tied, recompute, approximate)


PROGRAMS = [
    Program("gpt", gpt(), adamw(foreach=False), after_backward=clip_norm, kinds=ALL),
    Program("gpt-fused", gpt(True, approximate="tanh"), adamw(fused=True), after_backward=clip_norm, kinds=ALL),
    Program("gpt-foreach", gpt(True, False), adamw(foreach=True), after_backward=clip_norm, kinds=ALL),
    Program("gpt-sgd", gpt(), sgd(momentum=0.9, foreach=False), after_backward=clip_by_item),
    Program("gpt-checkpoint", gpt(recompute=True), sgd(momentum=0.9, nesterov=True), kinds=HALF),
    Program("gpt-accumulate", gpt(True), adamw(foreach=True), accumulate=3, loss=shifted_cross_entropy),
    Program("llama", lambda: Llama(False), adamw(), shifted_cross_entropy, kinds=ALL),
    Program("llama-own-norm", lambda: Llama(True), adamw(), kinds=ALL),
    Program("gpt-half", gpt(True), sgd(momentum=0.9, foreach=True), after_backward=clip_norm, kinds=("fp16",)),
    Program("llama-half", lambda: Llama(True), sgd(momentum=0.9), kinds=("fp16",)),
    Program("relu", kinds=HALF),
    Program("gelu", lambda: Perceptron(nn.GELU())),
    Program("tanh", lambda: Perceptron(nn.Tanh()), loss=mse),
    Program("silu", lambda: Perceptron(nn.SiLU()), loss=bce),
    Program("sigmoid", lambda: Perceptron(nn.Sigmoid()), loss=bce_of_probabilities),
    Program("leaky-relu", lambda: Perceptron(nn.LeakyReLU(0.1))),
    Program("relu-in-place", lambda: Perceptron(nn.ReLU(inplace=True))),
    Program("relu6", lambda: Perceptron(nn.ReLU6())),
    Program("softplus", lambda: Perceptron(nn.Softplus())),
    Program("log-sigmoid", lambda: Perceptron(nn.LogSigmoid())),
    Program("dropout", lambda: Perceptron(nn.ReLU(), 0.2), kinds=HALF),
    Program("batch-norm", lambda: Perceptron(nn.ReLU(), batch_norm=True)),
    Program("smoothing", loss=smoothed_cross_entropy),
    Program("spatial", loss=spatial_cross_entropy),
    Program("masked-mean", loss=masked_mean),
    Program("gathered", loss=gathered),
    Program("clip-value", after_backward=clip_value),
    Program("clip-infinity", after_backward=clip_infinity),
    Program("amsgrad", optimizer=adamw(amsgrad=True, foreach=False)),
    Program("amsgrad-foreach", optimizer=adamw(amsgrad=True, foreach=True)),
    Program("amsgrad-fused", optimizer=adamw(amsgrad=True, fused=True, maximize=True)),
    Program("adam", optimizer=lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1, foreach=False)),
    Program("adam-foreach", optimizer=lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1, foreach=True)),
    Program("adam-fused", optimizer=lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1, fused=True)),
    Program("adam-low-beta", optimizer=lambda p: torch.optim.Adam(p, betas=(0.3, 0.9), fused=True)),
    Program("adagrad-fused", optimizer=lambda p: torch.optim.Adagrad(p, 0.1, 0.01, 0.1, fused=True)),
    Program("sgd-fused", optimizer=sgd(momentum=0.9, nesterov=True, weight_decay=0.1, fused=True)),
    Program("sgd-foreach", optimizer=sgd(momentum=0.9, weight_decay=0.1, dampening=0.1, foreach=True)),
    Program("rmsprop", optimizer=lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True, foreach=False)),
    Program("rmsprop-foreach", optimizer=lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True, foreach=True)),
    Program("adagrad", optimizer=lambda p: torch.optim.Adagrad(p, foreach=False)),
    Program("adagrad-foreach", optimizer=lambda p: torch.optim.Adagrad(p, foreach=True)),
    Program("scaler", gpt(True), sgd(), scaler=True, kinds=("fp32", "autocast", "autocast16")),
    Program("scaler-fused", gpt(True), adamw(fused=True), scaler=True, kinds=("fp32", "autocast16")),
    Program("scaler-clip", gpt(), adamw(), after_backward=clip_norm, scaler=True, kinds=("autocast16",)),
    Program("scaler-overflow", gpt(), sgd(), scaler=True, init_scale=2.0**127, kinds=("autocast", "autocast16")),
]


WEIGHTS = {"fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}
AUTOCAST = {"autocast": torch.bfloat16, "autocast16": torch.float16}


class Training:
    """A program's run: `step` is one training step."""

    def __init__(self, program: Program, kind: str) -> None:
        torch.manual_seed(5)
        self.program, self.kind = program, kind
        self.model = program.model()
        if kind in WEIGHTS:
            self.model.to(WEIGHTS[kind])
        self.optimizer = program.optimizer(list(self.model.parameters()))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=program.init_scale, enabled=program.scaler)

    def step(self) -> None:
        program = self.program
        tokens, targets = torch.randint(0, 48, (6, 12)), torch.randint(0, 48, (6, 12))
        rows = 6 // program.accumulate
        for part in range(program.accumulate):
            window = slice(part * rows, (part + 1) * rows)
            with torch.autocast("cpu", AUTOCAST.get(self.kind), enabled=self.kind in AUTOCAST):
                loss = program.loss(self.model(tokens[window]), targets[window]) / program.accumulate
            self.scaler.scale(loss).backward()
        if program.after_backward is not None:
            program.after_backward(self.model)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


def expressions() -> dict[str, Callable[[], dict[str, Tensor]]]:
    """Single operations in fp64 with their gradients, in forms that the programs above do not meet."""
    torch.manual_seed(7)
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    matrix = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([[0, 2], [1, 1]])

    def differentiated(function: Callable[[], Tensor]) -> Callable[[], dict[str, Tensor]]:
        def run() -> dict[str, Tensor]:
            out = function()
            inputs = [t for t in (x, y, matrix)]
            weights = torch.linspace(0.5, 1.5, out.numel(), dtype=torch.float64).view(out.shape)
            gradients = torch.autograd.grad((out * weights).sum(), inputs, allow_unused=True)
            return {"out": out} | {f"d{i}": g for i, g in enumerate(gradients) if g is not None}

        return run

    def plain(function: Callable[[], Tensor]) -> Callable[[], dict[str, Tensor]]:
        def run() -> dict[str, Tensor]:
            with torch.no_grad():
                return {"out": function()}

        return run

    positive = lambda: x.abs() + 0.5  # noqa: E731
    return {
        name: differentiated(function)
        for name, function in {
            "exp": lambda: x.exp() + x.expm1(),
            "log": lambda: positive().log() + positive().log1p() + positive().sqrt() + positive().rsqrt(),
            "trigonometric": lambda: x.sin() * y.cos() + x.tanh() * y.erf(),
            "reciprocal": lambda: positive().reciprocal() + y / positive() - 2.0 / positive(),
            "pow": lambda: positive() ** 2.5 + x**3 + x**2 + positive() ** -0.5 + positive() ** y + 2.0**x,
            "fake-quantize": lambda: torch.fake_quantize_per_tensor_affine(x, 0.25, 1, -4, 5) * y,
            "clamp": lambda: x.clamp(-0.5, 0.7) + y.clamp_min(0.1) * x.clamp(max=0.2),
            "extremes": lambda: torch.maximum(x, y) * torch.minimum(x, y),
            "sign": lambda: x.sign() * y + x.abs() + x.neg() + torch.where(x > y, x, y * 2),
            "norms": lambda: x.norm(dim=1) + x.norm(p=1, dim=1) + x.norm(p=3, dim=1) + x.norm(math.inf, dim=1),
            "variance": lambda: x.var(-1) + x.std(-1, correction=0) + x.mean(-1) * y.sum(-1),
            "variance-mean": lambda: sum(torch.var_mean(x, dim=(0, 2))),
            "extreme-values": lambda: x.amax((0, 2)) + x.amin((0, 2)) + y.amax((0, 2), keepdim=True).flatten(),
            "max-dim": lambda: x.max(1).values * x.min(1).values,
            "max-all": lambda: x.max() * x.min(),
            "cumsum": lambda: x.cumsum(1) * y.cumsum(-1),
            "softmax": lambda: x.softmax(1) + y.log_softmax(0),
            "safe-softmax": lambda: torch._safe_softmax(x.masked_fill(x[:, :, :1] > 0, -math.inf), -1),
            "logsumexp": lambda: x.logsumexp(1) + y.logsumexp((1,)),
            "products": lambda: x @ matrix + (matrix.T @ y.transpose(1, 2)).transpose(1, 2),
            "vectors": lambda: (matrix @ x[0, :, 0]) * y[0, 0] + x[0, 0].dot(y[0, 0]),
            "baddbmm": lambda: torch.baddbmm(y[:, :, :4], x, matrix.expand(3, 5, 4), beta=0.5, alpha=2.0),
            "addmm": lambda: torch.addmm(y[0, :, :4], x[0], matrix, beta=0.5, alpha=2.0),
            "einsum": lambda: torch.einsum("bij,bkj->bik", x, y) @ matrix.T,
            "cat": lambda: torch.cat([x, y[:, :2], x[:, 1:3]], 1) * 2,
            "stack": lambda: torch.stack([x, y, x * y], 2).flatten(1, 2),
            "pad": lambda: F.pad(x, (1, 2, 0, 3), value=0.5) * 3,
            "slices": lambda: x[:, 1:4:2, ::2] * y[:, -2:, :3] + x[0, 0, 0] + y.select(2, 1)[:, :2, None],
            "index": lambda: x[index] + x[:, index].sum(1)[:, :, None][:2] + y[index, :, index][..., None],
            "index-select": lambda: x.index_select(1, torch.tensor([3, 0, 0])) * 2,
            "gather": lambda: x.gather(2, torch.tensor([0, 4, 1, 1]).expand(3, 4, 4)) * 3,
            "take-along": lambda: x.take_along_dim(x.argsort(-1)[..., :2], -1),
            "scatter-add": lambda: x.scatter_add(2, torch.tensor([0, 4, 1, 1]).expand(3, 4, 4), y[..., :4]),
            "index-add": lambda: x.index_add(1, torch.tensor([2, 2, 0]), y[:, :3], alpha=0.5),
            "roll": lambda: x.roll(2, 1) * y.roll(-1, 2) + x.roll(3),
            "repeat": lambda: x.repeat(2, 1, 1) + y.repeat_interleave(2, 0),
            "triangles": lambda: x.tril(1) + y.triu(-1) + x[0].tril() @ matrix @ y[0].triu(1),
            "lerp": lambda: x.lerp(y, 0.3) + x.lerp(y, 0.7) + torch.addcmul(x, y, y, value=0.3),
            "permuted": lambda: (x.permute(2, 0, 1) * y.permute(2, 0, 1).exp()).reshape(5, 12) * 2,
            "layer-norm": lambda: F.layer_norm(x, (4, 5)) + F.layer_norm(y, (5,)),
            "rms-norm": lambda: F.rms_norm(x, (5,), eps=1e-5) * y,
            "batch-norm": lambda: F.batch_norm(x, None, None, matrix[0], matrix[1], True),
            "activations": lambda: F.hardtanh(x) + F.leaky_relu(y, 0.2) + F.softplus(x, 2.0) + F.logsigmoid(y),
            "losses": lambda: F.mse_loss(x, y, reduction="sum") + F.l1_loss(x, y) + F.mse_loss(x, y, reduction="none"),
            "attention": lambda: F.scaled_dot_product_attention(x[None], y[None], (x * y)[None], scale=0.3),
            "attention-mask": lambda: F.scaled_dot_product_attention(
                x[None], y[None], x[None], attn_mask=torch.tril(torch.ones(4, 4)).bool()
            ),
            "attention-bias": lambda: F.scaled_dot_product_attention(
                x[None], y[None], x[None], attn_mask=torch.linspace(-1, 1, 16, dtype=torch.float64).view(4, 4)
            ),
            "convolution": lambda: F.conv1d(x, y[:, :, :3].reshape(6, 2, 3), matrix[:, 0].repeat(2)[:6], 2, 1, 1, 2),
            "convolution-2d": lambda: F.conv2d(
                x[:, None], y[0, :, :4].reshape(2, 1, 4, 2), None, (2, 1), (2, 1), (1, 2)
            ),
            "convolution-leftover": lambda: F.conv2d(x[None], y[:, :2].reshape(2, 3, 1, 5)[..., :2], stride=3),
            "remainder": lambda: (
                x.remainder(0.7) + x.fmod(0.3) + x * (x.detach() // 0.5) + x.round() + y.floor() + y.ceil()
            ),
        }.items()
    } | {
        name: plain(function)
        for name, function in {
            "factories": lambda: (
                torch.arange(2, 14, 3, dtype=torch.float64)
                + torch.linspace(0, 1, 4, dtype=torch.float64)
                + torch.full((4,), 0.1, dtype=torch.float64)
                + torch.eye(4, dtype=torch.float64).sum(0)
                + torch.ones_like(x[0, :, 0])
                + x.new_full((4,), 2.5)
            ),
            "masks": lambda: torch.where(((x > 0) & (y < 1)) | (x.isnan() ^ y.isfinite()), x, 0.0).masked_fill(
                (x >= y).logical_not(), 0.25
            ),
            "in-place": lambda: x.clone().mul_(y).add_(1, alpha=3).clamp_(-1, 2).addcdiv_(x, y, value=0.1).neg_(),
            "strided-write": lambda: _strided_write(x.detach()),
            "casts": lambda: (x * 9).to(torch.int64).double() + x.bool() + (x / 0).long(),
            "one-hot": lambda: F.one_hot(index, 4).double(),
            "quantifiers": lambda: (x > 0).any(1).double() + (x > -1).all(1) + x.argmax(1) + x.argmin(1),
            "out": lambda: torch.add(x, y, alpha=2, out=torch.zeros_like(x)),
            "integers": lambda: (torch.arange(12).view(3, 4) * 3 - 5).remainder(4).sum(0).double(),
        }.items()
    }


def _strided_write(x: Tensor) -> Tensor:
    base = x.clone()
    base[:, 1:3].mul_(2)
    base.transpose(0, 1)[0].add_(1)
    base.view(-1)[7:23].neg_()
    base[1] = base[0] * 3
    return base.reshape(4, 15) + 1


def narrow_expressions() -> dict[str, Callable[[], dict[str, Tensor]]]:
    """What mixed-precision programs do by hand, in 16-bit formats: casts, copies, sums in the narrow format."""
    draw = torch.Generator().manual_seed(11)
    wide, other = torch.randn(64, generator=draw), torch.randn(64, generator=draw)

    def in_a_loop(dtype: torch.dtype) -> Tensor:
        total = torch.zeros((), dtype=dtype)
        for a, b in zip(wide.to(dtype), other.to(dtype), strict=True):
            total = total + a * b
        return total

    def master_weights(dtype: torch.dtype) -> dict[str, Tensor]:
        """Gradients unscaled and cast to fp32, a step of fp32 weights, which are copied back."""
        master, weight, gradient = wide.clone(), wide.to(dtype), (other * 1024).to(dtype)
        unscaled = gradient.float().div_(1024.0)
        master.add_(unscaled, alpha=-0.1)
        weight.copy_(master)
        return {"gradient": unscaled, "master": master, "weight": weight}

    def forms(dtype: torch.dtype) -> dict[str, Callable[[], dict[str, Tensor]]]:
        return {
            "loop": lambda: {"out": in_a_loop(dtype)},
            "sums": lambda: {
                "narrow": wide.to(dtype).sum(dtype=dtype),
                "wide": wide.to(dtype).sum(dtype=torch.float32),
                "mean": wide.to(dtype).mean(),
                "running": wide.to(dtype).cumsum(0),
            },
            "products": lambda: {
                "dot": wide.to(dtype) @ other.to(dtype),
                "matrix": wide.to(dtype).view(8, 8) @ other.to(dtype).view(8, 8),
                "batch": wide.to(dtype).view(4, 4, 4) @ other.to(dtype).view(4, 4, 4),
            },
            "casts": lambda: {
                "there-and-back": wide.to(dtype).float() - wide,
                "mixed": wide.to(dtype) * other + wide.to(dtype) * 0.1,
                "stored": torch.empty(64, dtype=dtype).copy_(wide).type_as(other),
            },
            "master-weights": lambda: master_weights(dtype),
        }

    return {
        f"{name}-{kind}": run
        for kind, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16))
        for name, run in forms(dtype).items()
    }
