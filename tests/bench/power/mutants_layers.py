"""Formula mutants of the layers: normalisation, attention, rotary positions, feed-forward."""

import math

import torch
from formulas import DROPOUT, EPS, GPT, GPTWithDropout, Llama
from mutant import mutant
from torch import Tensor, nn

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


@mutant("attention: groups of heads tiled instead of repeated", first_use=("scores",))
class _(Llama):
    def repeat_groups(self, x: Tensor) -> Tensor:
        return x.repeat(1, self.heads // self.groups, 1, 1)


@mutant("attention: the values are the keys", first_use=("linear",))
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


@mutant("dropout: kept values are dropped and the other way round", first_use=("dropout",))
class _(GPTWithDropout):
    def dropout(self, x: Tensor) -> Tensor:
        kept = torch.rand_like(x) < DROPOUT
        return x * kept / (1 - DROPOUT)
