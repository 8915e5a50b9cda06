"""Formula mutants of the training step: the model, loss, accumulation, clipping, optimizers."""

import math

import torch
from formulas import (
    ALPHA,
    BETA_1,
    BETA_2,
    CLIP,
    DAMPENING,
    GPT,
    LR,
    MOMENTUM,
    OPTIMIZER_EPS,
    PADDING,
    SMOOTHING,
    STEP,
    WEIGHT_DECAY,
    Llama,
)
from mutant import mutant
from torch import Tensor, nn

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


@mutant("no final norm", first_use=("layer_norm",))
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


@mutant("accumulation: gradients of the first part are cleared", first_use=("layer_norm", "logits", "embed"))
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
