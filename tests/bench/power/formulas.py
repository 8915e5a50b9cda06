"""A training step written out as formulas: the reference of every formula mutant.

Decoder is the step; GPT and Llama choose among its formulas. One method, one formula, so that a mutant is a subclass
that overrides one of them (mutants.py). Sizes are small: what is looked for is an error of mathematics, and the matched
gap sees that at any size.
"""

import math

import torch
from torch import Tensor, nn

BATCH, TIME, VOCABULARY = 4, 12, 40
PADDING = 0  # A token that is not counted in the loss.
EPS = 1e-5
STEP = 3  # Steps taken, this one included.
LR, WEIGHT_DECAY, MOMENTUM, DAMPENING = 1e-3, 0.1, 0.9, 0.1
BETA_1, BETA_2, ALPHA, OPTIMIZER_EPS = 0.9, 0.95, 0.99, 1e-8
CLIP = 0.5
SMOOTHING, DROPOUT = 0.1, 0.2


class Decoder(nn.Module):
    width, heads, groups, hidden, depth = 32, 4, 4, 64, 2
    tied = True
    optimizer = "adamw"
    micro_batches = 1
    loss_scale = 1.0

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(11)

        def matrix(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns, generator=draw) / math.sqrt(columns))

        def vector(size: int, centre: float) -> nn.Parameter:
            return nn.Parameter(centre + 0.1 * torch.randn(size, generator=draw))

        keys = self.width // self.heads * self.groups
        self.token, self.position = matrix(VOCABULARY, self.width), matrix(TIME + 2, self.width)
        self.head = self.token if self.tied else matrix(VOCABULARY, self.width)
        self.gain, self.bias = vector(self.width, 1), vector(self.width, 0)
        self.layers = nn.ModuleList(
            nn.ParameterDict(
                {
                    "gain_1": vector(self.width, 1),
                    "bias_1": vector(self.width, 0),
                    "q": matrix(self.width, self.width),
                    "k": matrix(keys, self.width),
                    "v": matrix(keys, self.width),
                    "o": matrix(self.width, self.width),
                    "gain_2": vector(self.width, 1),
                    "bias_2": vector(self.width, 0),
                    "gate": matrix(self.hidden, self.width),
                    "up": matrix(self.hidden, self.width),
                    "down": matrix(self.width, self.hidden),
                }
            )
            for _ in range(self.depth)
        )
        for name, weight in list(self.named_parameters()):
            self.register_buffer(self.state("m", name), 0.01 * torch.randn(weight.shape, generator=draw))
            self.register_buffer(self.state("v", name), 1e-4 * torch.rand(weight.shape, generator=draw))

    @staticmethod
    def state(kind: str, name: str) -> str:
        return f"{kind}_{name.replace('.', '_')}"

    # Layers.

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight.T

    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        root = (variance + EPS).sqrt()
        return centred / root * gain + bias

    def rms_norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        mean_square = x.square().mean(-1, keepdim=True)
        scale = (mean_square + EPS).rsqrt()
        return x * scale * gain

    def norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        return self.layer_norm(x, gain, bias)

    def gelu(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))

    def silu(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    def feed_forward(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        inner = self.gelu(self.linear(x, w["up"]))
        return self.linear(inner, w["down"])

    def dropout(self, x: Tensor) -> Tensor:
        kept = torch.rand_like(x) >= DROPOUT
        return x * kept / (1 - DROPOUT)

    # Attention.

    def split_heads(self, x: Tensor, heads: int) -> Tensor:  # (batch, time, heads * size) to (batch, heads, time, size)
        return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)

    def merge_heads(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def repeat_groups(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.heads // self.groups, 1) if self.heads != self.groups else x

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])

    def mask(self, scores: Tensor) -> Tensor:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(ahead, float("-inf"))

    def softmax(self, x: Tensor) -> Tensor:
        powers = (x - x.amax(-1, keepdim=True)).exp()
        return powers / powers.sum(-1, keepdim=True)

    def rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequency = 10000.0 ** (-torch.arange(0, half) / half)
        angle = torch.outer(torch.arange(x.shape[-2]), frequency)
        left, right = x[..., :half], x[..., half:]
        turned_left = left * angle.cos() - right * angle.sin()
        turned_right = right * angle.cos() + left * angle.sin()
        return torch.cat([turned_left, turned_right], -1)

    def place(self, x: Tensor) -> Tensor:
        return x

    def attention(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        q = self.place(self.split_heads(self.linear(x, w["q"]), self.heads))
        k = self.place(self.split_heads(self.linear(x, w["k"]), self.groups))
        v = self.split_heads(self.linear(x, w["v"]), self.groups)
        weights = self.softmax(self.mask(self.scores(q, self.repeat_groups(k))))
        mixed = self.merge_heads(weights @ self.repeat_groups(v))
        return self.linear(mixed, w["o"])

    # The model.

    def embed(self, tokens: Tensor) -> Tensor:
        return self.token[tokens] + self.position[torch.arange(tokens.shape[1])]

    def block(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        x = x + self.attention(self.norm(x, w["gain_1"], w["bias_1"]), w)
        return x + self.feed_forward(self.norm(x, w["gain_2"], w["bias_2"]), w)

    def logits(self, x: Tensor) -> Tensor:
        x = self.norm(x, self.gain, self.bias)
        return x @ self.head.T

    def log_softmax(self, x: Tensor) -> Tensor:
        return x.log_softmax(-1)

    def cross_entropy(self, logits: Tensor, tokens: Tensor) -> Tensor:
        log_p = self.log_softmax(logits[:, :-1])
        picked = log_p.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        each = -(1 - SMOOTHING) * picked - SMOOTHING * log_p.mean(-1)
        counted = tokens[:, 1:] != PADDING
        return (each * counted).sum() / counted.sum()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for w in self.layers:
            x = self.block(x, w)
        return self.cross_entropy(self.logits(x), tokens)

    # The update.

    def backward(self, tokens: Tensor) -> Tensor:
        total = torch.zeros(())
        for part in tokens.chunk(self.micro_batches):
            loss = self(part)
            (loss / self.micro_batches * self.loss_scale).backward()
            total = total + loss.detach() / self.micro_batches
        return total

    def unscale(self, grad: Tensor) -> Tensor:
        return grad / self.loss_scale

    def norm_of(self, grads: list[Tensor]) -> Tensor:
        return torch.stack([g.square().sum() for g in grads]).sum().sqrt()

    def clip(self, grads: list[Tensor]) -> list[Tensor]:
        factor = CLIP / (self.norm_of(grads) + 1e-6)
        return [g * factor.clamp(max=1) for g in grads]

    def adamw(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        w = w * (1 - LR * WEIGHT_DECAY)
        m.copy_(BETA_1 * m + (1 - BETA_1) * g)
        v.copy_(BETA_2 * v + (1 - BETA_2) * g * g)
        m_hat = m / (1 - BETA_1**STEP)
        v_hat = v / (1 - BETA_2**STEP)
        return w - LR * m_hat / (v_hat.sqrt() + OPTIMIZER_EPS)

    def sgd(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        g = g + WEIGHT_DECAY * w
        m.copy_(MOMENTUM * m + (1 - DAMPENING) * g)
        return w - LR * (g + MOMENTUM * m)

    def rmsprop(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        v.copy_(ALPHA * v + (1 - ALPHA) * g * g)
        return w - LR * g / (v.sqrt() + OPTIMIZER_EPS)

    def step(self, tokens: Tensor) -> dict[str, Tensor]:
        """One step; returns the taps: loss, gradients, weights and optimizer state after it."""
        loss = self.backward(tokens)
        taps = {"loss": loss}
        update = getattr(self, self.optimizer)
        with torch.no_grad():
            used = [(name, w) for name, w in self.named_parameters() if w.grad is not None]
            names, weights = zip(*used, strict=True)
            grads = [self.unscale(w.grad) for w in weights]
            taps |= {f"grad:{name}": g for name, g in zip(names, grads, strict=True)}
            for name, w, g in zip(names, weights, self.clip(grads), strict=True):
                m, v = getattr(self, self.state("m", name)), getattr(self, self.state("v", name))
                w.copy_(update(w, g, m, v))
                taps |= {f"weight:{name}": w.detach(), f"m:{name}": m, f"v:{name}": v}
        return taps


class GPT(Decoder):
    pass


class Llama(Decoder):
    groups, tied = 2, False

    def norm(self, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        return self.rms_norm(x, gain, bias)

    def place(self, x: Tensor) -> Tensor:
        return self.rotate(x)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.token[tokens]

    def feed_forward(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        inner = self.silu(self.linear(x, w["gate"])) * self.linear(x, w["up"])
        return self.linear(inner, w["down"])


class GPTWithDropout(GPT):
    def block(self, x: Tensor, w: nn.ParameterDict) -> Tensor:
        x = x + self.dropout(self.attention(self.norm(x, w["gain_1"], w["bias_1"]), w))
        return x + self.dropout(self.feed_forward(self.norm(x, w["gain_2"], w["bias_2"]), w))


def batch(seed: int = 5) -> Tensor:
    return torch.randint(0, VOCABULARY, (BATCH, TIME), generator=torch.Generator().manual_seed(seed))
