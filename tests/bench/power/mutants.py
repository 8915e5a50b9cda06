"""Formula mutants: subclasses of a Decoder in which one formula is wrong.

To add one, override the method that holds the formula (below a line `@mutant("what is wrong")`) and change as little
as possible. The fault is where the texts of the two methods differ: a verdict has located it when its suspect is one of
these lines, in the mutant's method or, for something left out, in the reference's. Where no operation of these lines is
wrong in itself (a view, an argument, a detached gradient), it shows in the first operation that uses their result: name
that operation's method in `first_use`.
"""

import difflib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from formulas import (
    ALPHA,
    BETA_1,
    BETA_2,
    CLIP,
    DAMPENING,
    DROPOUT,
    EPS,
    GPT,
    LR,
    MOMENTUM,
    OPTIMIZER_EPS,
    PADDING,
    SMOOTHING,
    STEP,
    WEIGHT_DECAY,
    Decoder,
    GPTWithDropout,
    Llama,
)  # fmt: skip
from torch import Tensor, nn


@dataclass(frozen=True)
class Mutant:
    what: str
    target: type[Decoder]
    first_use: tuple[str, ...]

    @property
    def reference(self) -> type[Decoder]:
        return self.target.__bases__[0]

    def fault(self) -> set[str]:
        """Lines at fault, "file.py:line": where the mutated methods and the reference's differ, in either."""
        lines: set[str] = set()
        for name, method in vars(self.target).items():
            if inspect.isfunction(method):
                original = getattr(self.reference, name)
                lines |= _differing(method, original) | _differing(original, method)
        for name in self.first_use:
            lines |= _differing(getattr(self.target, name), None)
        return lines


def _differing(method: Callable, other: Callable | None) -> set[str]:
    """Lines of a method that the other one lacks, and what follows a line that it lacks itself."""
    text, first = inspect.getsourcelines(method)
    file = inspect.getsourcefile(method).rpartition("/")[2]
    before = inspect.getsourcelines(other)[0] if other else []
    lines: set[int] = set()
    for kind, _, _, begin, end in difflib.SequenceMatcher(None, before, text, autojunk=False).get_opcodes():
        if kind == "delete":
            lines.add(begin)
        elif kind != "equal":
            lines |= set(range(begin, end))
    return {f"{file}:{first + line}" for line in lines}


MUTANTS: list[Mutant] = []


def mutant(what: str, first_use: tuple[str, ...] = ()) -> Callable[[type[Decoder]], type[Decoder]]:
    def register(target: type[Decoder]) -> type[Decoder]:
        MUTANTS.append(Mutant(what, target, first_use))
        return target

    return register


# Normalisation.


@mutant("layer norm: eps outside of the root")
class _(GPT):
    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        root = variance.sqrt() + EPS
        return centred / root * gain + bias


@mutant("layer norm: variance divided by n - 1")
class _(GPT):
    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)
        root = (variance + EPS).sqrt()
        return centred / root * gain + bias


@mutant("layer norm: eps of 1e-6 for 1e-5")
class _(GPT):
    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        root = (variance + 1e-6).sqrt()
        return centred / root * gain + bias


@mutant("layer norm: eps of 1.001e-5 for 1e-5")
class _(GPT):
    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        root = (variance + 1.001e-5).sqrt()
        return centred / root * gain + bias


@mutant("layer norm: the mean is taken for a constant in backward")
class _(GPT):
    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True).detach()
        variance = centred.square().mean(-1, keepdim=True)
        root = (variance + EPS).sqrt()
        return centred / root * gain + bias


@mutant("layer norm: the bias is subtracted")
class _(GPT):
    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        root = (variance + EPS).sqrt()
        return centred / root * gain - bias


@mutant("RMS norm: eps outside of the root")
class _(Llama):
    def rms_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        mean_square = x.square().mean(-1, keepdim=True)
        scale = 1 / (mean_square.sqrt() + EPS)
        return x * scale * gain


@mutant("RMS norm: gain of 1 + w")
class _(Llama):
    def rms_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        mean_square = x.square().mean(-1, keepdim=True)
        scale = (mean_square + EPS).rsqrt()
        return x * scale * (1 + gain)


@mutant("RMS norm: centred as in a layer norm")
class _(Llama):
    def rms_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        mean_square = x.square().mean(-1, keepdim=True)
        scale = (mean_square + EPS).rsqrt()
        return x * scale * gain


@mutant("RMS norm: averaged over time too")
class _(Llama):
    def rms_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        mean_square = x.square().mean((-2, -1), keepdim=True)
        scale = (mean_square + EPS).rsqrt()
        return x * scale * gain


@mutant("RMS norm: the scale is taken for a constant in backward")
class _(Llama):
    def rms_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        mean_square = x.square().mean(-1, keepdim=True)
        scale = (mean_square + EPS).rsqrt()
        return x * scale.detach() * gain


# Attention.


@mutant("attention: scores are not divided by sqrt(d)", first_use=("softmax", "mask"))
class _(GPT):
    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1)


@mutant("attention: scores divided by sqrt of the model's width")
class _(GPT):
    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / math.sqrt(self.width)


@mutant("attention: scores divided by d")
class _(GPT):
    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / q.shape[-1]


@mutant("attention: mask off by one, the next token is seen")
class _(GPT):
    def mask(self, scores: Tensor) -> Tensor:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(2)
        return scores.masked_fill(ahead, float("-inf"))


@mutant("attention: masked with -1e1 instead of -inf")
class _(GPT):
    def mask(self, scores: Tensor) -> Tensor:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(ahead, -1e1)


@mutant("attention: no mask at all", first_use=("softmax",))
class _(GPT):
    def mask(self, scores: Tensor) -> Tensor:
        return scores


@mutant("attention: softmax over the queries")
class _(GPT):
    def softmax(self, x: Tensor) -> Tensor:
        powers = (x - x.amax(-2, keepdim=True)).exp()
        return powers / powers.sum(-2, keepdim=True)


@mutant("attention: the softmax has 1 more in its denominator")
class _(GPT):
    def softmax(self, x: Tensor) -> Tensor:
        powers = (x - x.amax(-1, keepdim=True)).exp()
        return powers / (1 + powers.sum(-1, keepdim=True))


@mutant("attention: heads split without transposing time and heads", first_use=("scores",))
class _(GPT):
    def split_heads(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], heads, x.shape[1], -1)


@mutant("attention: heads merged without transposing back")
class _(GPT):
    def merge_heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[2], -1)


@mutant("attention: groups of heads tiled instead of repeated")
class _(Llama):
    def repeat_groups(self, x: Tensor) -> Tensor:
        return x.repeat(1, self.heads // self.groups, 1, 1)


@mutant("attention: the values are the keys")
class _(GPT):
    def attention(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        q = self.place(self.split_heads(self.linear(x, w["q"]), self.heads))
        k = self.place(self.split_heads(self.linear(x, w["k"]), self.groups))
        weights = self.softmax(self.mask(self.scores(q, self.repeat_groups(k))))
        mixed = self.merge_heads(weights @ self.repeat_groups(k))
        return self.linear(mixed, w["o"])


@mutant("attention: the weights are detached")
class _(GPT):
    def attention(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        q = self.place(self.split_heads(self.linear(x, w["q"]), self.heads))
        k = self.place(self.split_heads(self.linear(x, w["k"]), self.groups))
        v = self.split_heads(self.linear(x, w["v"]), self.groups)
        weights = self.softmax(self.mask(self.scores(q, self.repeat_groups(k)))).detach()
        mixed = self.merge_heads(weights @ self.repeat_groups(v))
        return self.linear(mixed, w["o"])


# Rotary positions.


@mutant("rotary: swapped sign")
class _(Llama):
    def rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequency = 10000.0 ** (-torch.arange(0, half) / half)
        angle = torch.outer(torch.arange(x.shape[-2]), frequency)
        left, right = x[..., :half], x[..., half:]
        turned_left = left * angle.cos() + right * angle.sin()
        turned_right = right * angle.cos() - left * angle.sin()
        return torch.cat([turned_left, turned_right], -1)


@mutant("rotary: positions multiplied by 1.01")
class _(Llama):
    def rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequency = 10000.0 ** (-torch.arange(0, half) / half)
        angle = torch.outer(1.01 * torch.arange(x.shape[-2]), frequency)
        left, right = x[..., :half], x[..., half:]
        turned_left = left * angle.cos() - right * angle.sin()
        turned_right = right * angle.cos() + left * angle.sin()
        return torch.cat([turned_left, turned_right], -1)


@mutant("rotary: frequencies over the whole size of a head")
class _(Llama):
    def rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequency = 10000.0 ** (-torch.arange(0, half) / (2 * half))
        angle = torch.outer(torch.arange(x.shape[-2]), frequency)
        left, right = x[..., :half], x[..., half:]
        turned_left = left * angle.cos() - right * angle.sin()
        turned_right = right * angle.cos() + left * angle.sin()
        return torch.cat([turned_left, turned_right], -1)


@mutant("rotary: base of 10001")
class _(Llama):
    def rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequency = 10001.0 ** (-torch.arange(0, half) / half)
        angle = torch.outer(torch.arange(x.shape[-2]), frequency)
        left, right = x[..., :half], x[..., half:]
        turned_left = left * angle.cos() - right * angle.sin()
        turned_right = right * angle.cos() + left * angle.sin()
        return torch.cat([turned_left, turned_right], -1)


@mutant("rotary: one half is a millionth too large")
class _(Llama):
    def rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequency = 10000.0 ** (-torch.arange(0, half) / half)
        angle = torch.outer(torch.arange(x.shape[-2]), frequency)
        left, right = x[..., :half], x[..., half:]
        turned_left = left * angle.cos() - right * angle.sin()
        turned_right = right * angle.cos() + left * angle.sin()
        return torch.cat([turned_left, turned_right * 1.000001], -1)


# Feed-forward.


@mutant("gelu: tanh form for erf")
class _(GPT):
    def gelu(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@mutant("gelu: erf of x / 2")
class _(GPT):
    def gelu(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.erf(x / 2))


@mutant("SiLU instead of GELU")
class _(GPT):
    def gelu(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)


@mutant("quick gelu instead of SiLU")
class _(Llama):
    def silu(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


@mutant("gate and up exchanged", first_use=("silu",))
class _(Llama):
    def feed_forward(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        inner = self.silu(self.linear(x, w["up"])) * self.linear(x, w["gate"])
        return self.linear(inner, w["down"])


@mutant("product: the last tile of K is dropped")
class _(GPT):
    def feed_forward(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        inner = self.gelu(self.linear(x, w["up"]))
        tiles = [slice(k, k + 16) for k in range(0, self.hidden - 16, 16)]
        return sum(inner[..., tile] @ w["down"][:, tile].T for tile in tiles)


@mutant("product: one tile of K is added twice")
class _(Llama):
    def feed_forward(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        inner = self.silu(self.linear(x, w["gate"])) * self.linear(x, w["up"])
        tiles = [slice(min(k, self.hidden - 16), min(k, self.hidden - 16) + 16) for k in range(0, self.hidden + 16, 16)]
        return sum(inner[..., tile] @ w["down"][:, tile].T for tile in tiles)


@mutant("dropout: kept values are not scaled", first_use=("block",))
class _(GPTWithDropout):
    def dropout(self, x: Tensor) -> Tensor:
        kept = torch.rand_like(x) >= DROPOUT
        return x * kept


@mutant("dropout: scaled by the probability to drop")
class _(GPTWithDropout):
    def dropout(self, x: Tensor) -> Tensor:
        kept = torch.rand_like(x) >= DROPOUT
        return x * kept / DROPOUT


@mutant("dropout: kept values are dropped and the other way round")
class _(GPTWithDropout):
    def dropout(self, x: Tensor) -> Tensor:
        kept = torch.rand_like(x) < DROPOUT
        return x * kept / (1 - DROPOUT)


# The model.


@mutant("no residual around the feed-forward", first_use=("layer_norm",))
class _(GPT):
    def block(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        x = x + self.attention(self.norm(x, w["gain_1"], w["bias_1"]), w)
        return self.feed_forward(self.norm(x, w["gain_2"], w["bias_2"]), w)


@mutant("residual from the normalised value")
class _(GPT):
    def block(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        x = x + self.attention(self.norm(x, w["gain_1"], w["bias_1"]), w)
        x = self.norm(x, w["gain_2"], w["bias_2"])
        return x + self.feed_forward(x, w)


@mutant("residual subtracted")
class _(GPT):
    def block(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        x = x - self.attention(self.norm(x, w["gain_1"], w["bias_1"]), w)
        return x + self.feed_forward(self.norm(x, w["gain_2"], w["bias_2"]), w)


@mutant("no final norm")
class _(GPT):
    def logits(self, x: Tensor) -> Tensor:
        return x @ self.head.T


@mutant("positions start at 1")
class _(GPT):
    def embed(self, tokens: Tensor) -> Tensor:
        return self.token[tokens] + self.position[torch.arange(1, tokens.shape[1] + 1)]


@mutant("no positions", first_use=("layer_norm",))
class _(GPT):
    def embed(self, tokens: Tensor) -> Tensor:
        return self.token[tokens]


@mutant("tied head is detached from the embedding")
class _(GPT):
    def logits(self, x: Tensor) -> Tensor:
        x = self.norm(x, self.gain, self.bias)
        return x @ self.head.detach().T


@mutant("embedding scaled by sqrt(width)")
class _(GPT):
    def embed(self, tokens: Tensor) -> Tensor:
        return self.token[tokens] * math.sqrt(self.width) + self.position[torch.arange(tokens.shape[1])]


# Loss.


@mutant("loss: labels not shifted")
class _(GPT):
    def cross_entropy(self, logits: Tensor, tokens: Tensor) -> Tensor:
        log_p = self.log_softmax(logits[:, :-1])
        picked = log_p.gather(-1, tokens[:, :-1].unsqueeze(-1)).squeeze(-1)
        each = -(1 - SMOOTHING) * picked - SMOOTHING * log_p.mean(-1)
        counted = tokens[:, 1:] != PADDING
        return (each * counted).sum() / counted.sum()


@mutant("loss: divided by all tokens, padding included")
class _(GPT):
    def cross_entropy(self, logits: Tensor, tokens: Tensor) -> Tensor:
        log_p = self.log_softmax(logits[:, :-1])
        picked = log_p.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        each = -(1 - SMOOTHING) * picked - SMOOTHING * log_p.mean(-1)
        counted = tokens[:, 1:] != PADDING
        return (each * counted).sum() / counted.numel()


@mutant("loss: padding is counted")
class _(GPT):
    def cross_entropy(self, logits: Tensor, tokens: Tensor) -> Tensor:
        log_p = self.log_softmax(logits[:, :-1])
        picked = log_p.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        each = -(1 - SMOOTHING) * picked - SMOOTHING * log_p.mean(-1)
        counted = tokens[:, 1:] != PADDING
        return each.sum() / counted.sum()


@mutant("loss: divided by the batch's size")
class _(Llama):
    def cross_entropy(self, logits: Tensor, tokens: Tensor) -> Tensor:
        log_p = self.log_softmax(logits[:, :-1])
        picked = log_p.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        each = -(1 - SMOOTHING) * picked - SMOOTHING * log_p.mean(-1)
        counted = tokens[:, 1:] != PADDING
        return (each * counted).sum() / tokens.shape[0]


@mutant("loss: mean over the tokens of each row, then over rows")
class _(Llama):
    def cross_entropy(self, logits: Tensor, tokens: Tensor) -> Tensor:
        log_p = self.log_softmax(logits[:, :-1])
        picked = log_p.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        each = -(1 - SMOOTHING) * picked - SMOOTHING * log_p.mean(-1)
        counted = tokens[:, 1:] != PADDING
        return ((each * counted).sum(-1) / counted.sum(-1)).mean()


@mutant("loss: smoothing adds to the label's whole share")
class _(GPT):
    def cross_entropy(self, logits: Tensor, tokens: Tensor) -> Tensor:
        log_p = self.log_softmax(logits[:, :-1])
        picked = log_p.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        each = -picked - SMOOTHING * log_p.mean(-1)
        counted = tokens[:, 1:] != PADDING
        return (each * counted).sum() / counted.sum()


@mutant("loss: smoothing of 0.100001")
class _(GPT):
    def cross_entropy(self, logits: Tensor, tokens: Tensor) -> Tensor:
        log_p = self.log_softmax(logits[:, :-1])
        picked = log_p.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        each = -(1 - 0.100001) * picked - 0.100001 * log_p.mean(-1)
        counted = tokens[:, 1:] != PADDING
        return (each * counted).sum() / counted.sum()


@mutant("loss: log of a softmax with 1e-6 added")
class _(GPT):
    def log_softmax(self, x: Tensor) -> Tensor:
        return (x.softmax(-1) + 1e-6).log()


# Accumulation, scaling, clipping.


class GPTInParts(GPT):
    micro_batches = 2


@mutant("accumulation: the sum of the parts' gradients is not divided by their number")
class _(GPTInParts):
    def backward(self, tokens: Tensor) -> Tensor:
        total = torch.zeros(())
        for part in tokens.chunk(self.micro_batches):
            loss = self(part)
            (loss * self.loss_scale).backward()
            total = total + loss.detach()
        return total


@mutant("accumulation: gradients of the first part are cleared", first_use=("logits",))
class _(GPTInParts):
    def backward(self, tokens: Tensor) -> Tensor:
        total = torch.zeros(())
        for part in tokens.chunk(self.micro_batches):
            loss = self(part)
            self.zero_grad()
            (loss / self.micro_batches * self.loss_scale).backward()
            total = total + loss.detach() / self.micro_batches
        return total


class LlamaScaled(Llama):
    loss_scale = 1024.0


@mutant("loss scale: gradients are not unscaled", first_use=("norm_of",))
class _(LlamaScaled):
    def unscale(self, grad: Tensor) -> Tensor:
        return grad


@mutant("clipping: squares of the norms are squared again")
class _(GPT):
    def norm_of(self, grads: list[Tensor]) -> Tensor:
        return torch.stack([g.square().sum().square() for g in grads]).sum().sqrt()


@mutant("clipping: the largest norm for the norm of all")
class _(GPT):
    def norm_of(self, grads: list[Tensor]) -> Tensor:
        return torch.stack([g.square().sum() for g in grads]).amax().sqrt()


@mutant("clipping: the first gradient is left out of the norm", first_use=("norm_of",))
class _(GPT):
    def clip(self, grads: list[Tensor]) -> list[Tensor]:
        factor = CLIP / (self.norm_of(grads[1:]) + 1e-6)
        return [g * factor.clamp(max=1) for g in grads]


# Optimizers.


@mutant("AdamW: eps inside of the root")
class _(GPT):
    def adamw(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        w = w * (1 - LR * WEIGHT_DECAY)
        m.copy_(BETA_1 * m + (1 - BETA_1) * g)
        v.copy_(BETA_2 * v + (1 - BETA_2) * g * g)
        m_hat = m / (1 - BETA_1**STEP)
        v_hat = v / (1 - BETA_2**STEP)
        return w - LR * m_hat / (v_hat + OPTIMIZER_EPS).sqrt()


@mutant("AdamW: no bias correction of the second moment")
class _(GPT):
    def adamw(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        w = w * (1 - LR * WEIGHT_DECAY)
        m.copy_(BETA_1 * m + (1 - BETA_1) * g)
        v.copy_(BETA_2 * v + (1 - BETA_2) * g * g)
        m_hat = m / (1 - BETA_1**STEP)
        return w - LR * m_hat / (v.sqrt() + OPTIMIZER_EPS)


@mutant("AdamW: bias correction with the step before")
class _(GPT):
    def adamw(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        w = w * (1 - LR * WEIGHT_DECAY)
        m.copy_(BETA_1 * m + (1 - BETA_1) * g)
        v.copy_(BETA_2 * v + (1 - BETA_2) * g * g)
        m_hat = m / (1 - BETA_1 ** (STEP - 1))
        v_hat = v / (1 - BETA_2**STEP)
        return w - LR * m_hat / (v_hat.sqrt() + OPTIMIZER_EPS)


@mutant("AdamW: beta_2 of 0.951")
class _(GPT):
    def adamw(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        w = w * (1 - LR * WEIGHT_DECAY)
        m.copy_(BETA_1 * m + (1 - BETA_1) * g)
        v.copy_(0.951 * v + (1 - 0.951) * g * g)
        m_hat = m / (1 - BETA_1**STEP)
        v_hat = v / (1 - BETA_2**STEP)
        return w - LR * m_hat / (v_hat.sqrt() + OPTIMIZER_EPS)


@mutant("AdamW: the gradient enters the first moment whole")
class _(Llama):
    def adamw(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        w = w * (1 - LR * WEIGHT_DECAY)
        m.copy_(BETA_1 * m + g)
        v.copy_(BETA_2 * v + (1 - BETA_2) * g * g)
        m_hat = m / (1 - BETA_1**STEP)
        v_hat = v / (1 - BETA_2**STEP)
        return w - LR * m_hat / (v_hat.sqrt() + OPTIMIZER_EPS)


@mutant("AdamW: weight decay coupled to the gradient")
class _(GPT):
    def adamw(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        g = g + WEIGHT_DECAY * w
        m.copy_(BETA_1 * m + (1 - BETA_1) * g)
        v.copy_(BETA_2 * v + (1 - BETA_2) * g * g)
        m_hat = m / (1 - BETA_1**STEP)
        v_hat = v / (1 - BETA_2**STEP)
        return w - LR * m_hat / (v_hat.sqrt() + OPTIMIZER_EPS)


@mutant("AdamW: weight decay not multiplied by the learning rate")
class _(GPT):
    def adamw(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        w = w * (1 - WEIGHT_DECAY)
        m.copy_(BETA_1 * m + (1 - BETA_1) * g)
        v.copy_(BETA_2 * v + (1 - BETA_2) * g * g)
        m_hat = m / (1 - BETA_1**STEP)
        v_hat = v / (1 - BETA_2**STEP)
        return w - LR * m_hat / (v_hat.sqrt() + OPTIMIZER_EPS)


@mutant("AdamW: eps of 1e-7 for 1e-8")
class _(GPT):
    def adamw(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        w = w * (1 - LR * WEIGHT_DECAY)
        m.copy_(BETA_1 * m + (1 - BETA_1) * g)
        v.copy_(BETA_2 * v + (1 - BETA_2) * g * g)
        m_hat = m / (1 - BETA_1**STEP)
        v_hat = v / (1 - BETA_2**STEP)
        return w - LR * m_hat / (v_hat.sqrt() + 1e-7)


class GPTWithSGD(GPT):
    optimizer = "sgd"


@mutant("SGD: no dampening")
class _(GPTWithSGD):
    def sgd(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        g = g + WEIGHT_DECAY * w
        m.copy_(MOMENTUM * m + g)
        return w - LR * (g + MOMENTUM * m)


@mutant("SGD: momentum without Nesterov's look ahead")
class _(GPTWithSGD):
    def sgd(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        g = g + WEIGHT_DECAY * w
        m.copy_(MOMENTUM * m + (1 - DAMPENING) * g)
        return w - LR * m


@mutant("SGD: weight decay of the wrong sign")
class _(GPTWithSGD):
    def sgd(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        g = g - WEIGHT_DECAY * w
        m.copy_(MOMENTUM * m + (1 - DAMPENING) * g)
        return w - LR * (g + MOMENTUM * m)


class LlamaWithRMSprop(Llama):
    optimizer = "rmsprop"


@mutant("RMSprop: eps inside of the root")
class _(LlamaWithRMSprop):
    def rmsprop(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        v.copy_(ALPHA * v + (1 - ALPHA) * g * g)
        return w - LR * g / (v + OPTIMIZER_EPS).sqrt()


@mutant("RMSprop: divided by the mean square itself")
class _(LlamaWithRMSprop):
    def rmsprop(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        v.copy_(ALPHA * v + (1 - ALPHA) * g * g)
        return w - LR * g / (v + OPTIMIZER_EPS)
