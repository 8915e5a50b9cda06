"""The kinds of blocks: inputs, layers, losses, steps and optimizers, each as one would write it."""

from __future__ import annotations

from .forms import INPUT, LAYER, LOSS, OPTIMIZER, STEP, Context, kind

# Inputs.


@kind(INPUT, data="x B,T,D:normal")
def features(c: Context) -> list[str]:
    return [f"h = {c.d('x')}"]


@kind(INPUT, data="tokens B,T:tokens", params="table V,D")
def embedding(c: Context) -> list[str]:
    return [f"h = F.embedding({c.d('tokens')}, {c.p('table')})"]


@kind(INPUT, data="x B,T,D:bytes")
def pixels(c: Context) -> list[str]:
    return [f"h = ({c.d('x')}.float() / 255.0 - 0.485) / 0.229"]


@kind(INPUT, data="key B,T:tokens", params="table V,D")
def hashed(c: Context) -> list[str]:
    return [
        f"code = ({c.d('key')} + 7) * 6364136223846793005 + 1442695040888963407",
        "code = (code ^ (code >> 29)) * -4417276706812531889",
        f"h = F.embedding(code % {c.p('table')}.shape[0], {c.p('table')})",
    ]


# Layers.


@kind(LAYER, params="w D,D; b D")
def linear(c: Context) -> list[str]:
    return [f"h = F.linear(h, {c.p('w')}, {c.p('b')})"]


@kind(LAYER, params="up E,D; down D,E")
def mlp(c: Context) -> list[str]:
    return [f"u = F.relu(F.linear(h, {c.p('up')}))", f"h = h + F.linear(u, {c.p('down')})"]


@kind(LAYER)
def gelu(c: Context) -> list[str]:
    return ["h = F.gelu(h)"]


@kind(LAYER)
def gelu_tanh(c: Context) -> list[str]:
    return ['h = F.gelu(h, approximate="tanh")']


@kind(LAYER)
def silu(c: Context) -> list[str]:
    return ["h = F.silu(h)"]


@kind(LAYER)
def tanh(c: Context) -> list[str]:
    return ["h = torch.tanh(h)"]


@kind(LAYER)
def softplus(c: Context) -> list[str]:
    return ["h = F.softplus(h)"]


@kind(LAYER, params="g D:near_one; b D", eps=(1e-5, 1e-6))
def layer_norm(c: Context) -> list[str]:
    return [f"h = F.layer_norm(h, ({c.width},), {c.p('g')}, {c.p('b')}, {c['eps']!r})"]


@kind(LAYER, params="g D:near_one", eps=(1e-5, 1e-6))
def rms_norm(c: Context) -> list[str]:
    return [f"h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + {c['eps']!r}) * {c.p('g')}"]


@kind(LAYER, tables="mean D:normal; var D:positive", params="g D:near_one; b D", eps=(1e-5,))
def batch_norm_eval(c: Context) -> list[str]:
    return [
        "x = h.transpose(1, 2)",
        f"x = F.batch_norm(x, {c.t('mean')}, {c.t('var')}, {c.p('g')}, {c.p('b')}, False, 0.1, {c['eps']!r})",
        "h = x.transpose(1, 2)",
    ]


@kind(LAYER, params="q D,D; k D,D; v D,D", causal=(True, False))
def attention(c: Context) -> list[str]:
    return [
        f"q, k, v = (F.linear(h, w) for w in ({c.p('q')}, {c.p('k')}, {c.p('v')}))",
        f"h = h + F.scaled_dot_product_attention(q, k, v, is_causal={c['causal']})",
    ]


@kind(LAYER, params="q D,D; k D,D", coupled=True)
def watched(c: Context) -> list[str]:
    """Attention to the state itself, whose scores, masked by infinities, are a tap."""
    return [
        f"scores = F.linear(h, {c.p('q')}) @ F.linear(h, {c.p('k')}).transpose(1, 2) * 0.5",
        f'scores = scores.masked_fill(torch.ones({c.time}, {c.time}).triu(1).bool(), float("-inf"))',
        f't["tap:scores{c.index}"] = scores.detach()',
        "h = h + torch.softmax(scores, -1) @ h",
    ]


@kind(LAYER, params="w D,D,3; b D")
def convolution(c: Context) -> list[str]:
    return [f"h = F.conv1d(h.transpose(1, 2), {c.p('w')}, {c.p('b')}, padding=1).transpose(1, 2)"]


@kind(LAYER, params="w D,D", eps=(0.1, 0.3))
def residual(c: Context) -> list[str]:
    return [f"h = h + {c['eps']!r} * torch.tanh(F.linear(h, {c.p('w')}))"]


@kind(LAYER, base=(10000.0, 500.0))
def rotary(c: Context) -> list[str]:
    half = c.width // 2
    return [
        f"freq = {c['base']!r} ** (-torch.arange(0, {half}).float() / {half})",
        f"angle = torch.outer(torch.arange({c.time}).float(), freq)",
        f"a, b = h[..., :{half}], h[..., {half}:]",
        "h = torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)",
    ]


@kind(LAYER, scale=(0.1, 0.37))
def damped(c: Context) -> list[str]:
    return [f"h = h * {c['scale']!r} + torch.sigmoid(h)"]


@kind(LAYER)
def positions(c: Context) -> list[str]:
    return [
        f"h = h + torch.sin(torch.arange({c.time}).float()[:, None] * 0.3 + torch.arange({c.width}).float() * 0.7)",
    ]


@kind(LAYER, p=(0.1, 0.25, 0.5), draws=True)
def dropout(c: Context) -> list[str]:
    """Draws in the order of memory: made contiguous, so that a layout is no part of what is drawn."""
    return [f"h = F.dropout(h.contiguous(), {c['p']!r})"]


@kind(LAYER, std=(0.1, 0.03), draws=True)
def noise(c: Context) -> list[str]:
    return [f"h = h + {c['std']!r} * torch.randn(h.shape)"]


@kind(LAYER, low=(-0.1, -0.05), high=(0.1, 0.2), draws=True)
def jitter(c: Context) -> list[str]:
    return [f"h = h * (1.0 + torch.empty(h.shape).uniform_({c['low']!r}, {c['high']!r}))"]


@kind(LAYER, draws=True)
def two_draws(c: Context) -> list[str]:
    """Noise from two generators of its own."""
    return [
        "one = torch.randn(h.shape, generator=torch.Generator().manual_seed(1))",
        "two = torch.rand(h.shape, generator=torch.Generator().manual_seed(2))",
        "h = h + 0.1 * one + 0.2 * (two - 0.5)",
    ]


@kind(LAYER, tables="mask T,D:coins")
def mask(c: Context) -> list[str]:
    return [f"h = h.masked_fill({c.t('mask')}, 0.0)"]


@kind(LAYER, params="w D,D", bits=(8, 6))
def quantized(c: Context) -> list[str]:
    """Symmetric rounding of the weight to a grid, with a straight-through gradient."""
    top = 2 ** (c["bits"] - 1) - 1
    return [
        f"w = {c.p('w')}",
        f"step = w.detach().abs().max() / {top}.0",
        f"codes = torch.clamp(torch.round(w.detach() / step), -{top}, {top})",
        "w = w + (codes * step - w).detach()",
        "h = h + F.linear(h, w)",
    ]


@kind(LAYER, k=(2, 3))
def top_k(c: Context) -> list[str]:
    return [
        f"values, places = h.topk({c['k']}, -1)",
        "h = torch.zeros_like(h).scatter_add(-1, places, torch.softmax(values, -1) * values) + h",
    ]


@kind(LAYER, params="gate D,D")
def gated(c: Context) -> list[str]:
    return [f"h = h * torch.sigmoid(F.linear(h, {c.p('gate')}))"]


@kind(LAYER)
def softmax(c: Context) -> list[str]:
    return ["h = h + torch.softmax(h, -1)"]


@kind(LAYER)
def unit(c: Context) -> list[str]:
    return ["h = F.normalize(h, dim=-1)"]


@kind(LAYER)
def pooled(c: Context) -> list[str]:
    return ["h = h + h.amax(1, keepdim=True)"]


@kind(LAYER)
def summed(c: Context) -> list[str]:
    return ["h = h + 0.1 * h.cumsum(1)"]


@kind(LAYER, tables="weights 4,T:normal")
def resized(c: Context) -> list[str]:
    return [f"h = h + ({c.t('weights')} @ h).mean(1, keepdim=True)"]


@kind(LAYER, params="s D:near_one")
def inplace(c: Context) -> list[str]:
    return [f"h = h * {c.p('s')}", "h.add_(0.3)", "h.mul_(0.7)"]


@kind(LAYER, params="w D,D")
def checkpointed(c: Context) -> list[str]:
    return [
        f"h = checkpoint(lambda x: torch.tanh(F.linear(x, {c.p('w')})) + x, h, use_reentrant=False)",
    ]


@kind(LAYER)
def floors(c: Context) -> list[str]:
    """Bins of the input, as a feature beside it."""
    return ["h = h + 0.125 * torch.floor(h.detach() * 4.0)"]


# Losses.


@kind(LOSS, data="y B,T,D:normal")
def mse(c: Context) -> list[str]:
    return [f"loss = F.mse_loss(h, {c.d('y')})"]


@kind(LOSS, data="y B,T:classes")
def cross_entropy(c: Context) -> list[str]:
    return [f"loss = F.cross_entropy(h.flatten(0, 1), {c.d('y')}.flatten())"]


@kind(LOSS, data="y B,T:ignoring", coupled=True)
def masked_cross_entropy(c: Context) -> list[str]:
    return [f"loss = F.cross_entropy(h.flatten(0, 1), {c.d('y')}.flatten(), ignore_index=-100)"]


@kind(LOSS, data="y B,T,D:normal", delta=(0.5, 1.0))
def huber(c: Context) -> list[str]:
    return [f"loss = F.huber_loss(h, {c.d('y')}, delta={c['delta']!r})"]


@kind(LOSS, data="y B,T,D:normal")
def l1(c: Context) -> list[str]:
    return [f"loss = (h - {c.d('y')}).abs().mean()"]


@kind(LOSS, data="y B,T,D:coins01")
def binary(c: Context) -> list[str]:
    return [f"loss = F.binary_cross_entropy_with_logits(h, {c.d('y')})"]


@kind(LOSS, data="y B,T,D:logits", temperature=(2.0, 3.0))
def distillation(c: Context) -> list[str]:
    tau = c["temperature"]
    return [
        f"teacher = F.log_softmax({c.d('y')} / {tau!r}, -1)",
        f"student = F.log_softmax(h / {tau!r}, -1)",
        f"loss = (teacher.exp() * (teacher - student)).sum(-1).mean() * {tau * tau!r}",
    ]


@kind(LOSS, data="y B,T:classes; old B,T:logp; reward B,T:normal", clip=(0.2, 0.1), coupled=True)
def policy(c: Context) -> list[str]:
    return [
        f"logp = F.log_softmax(h, -1).gather(-1, {c.d('y')}[..., None]).squeeze(-1)",
        f"reward = {c.d('reward')}",
        "advantage = (reward - reward.mean()) / (reward.std() + 1e-8)",
        f"ratio = torch.exp(logp - {c.d('old')})",
        f"clipped = ratio.clamp({1 - c['clip']!r}, {1 + c['clip']!r})",
        "loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()",
    ]


@kind(LOSS, data="y B,T:classes; advantage B,T:normal", beta=(0.1, 0.5))
def first_policy(c: Context) -> list[str]:
    """The first minibatch after a rollout: ratios are one, and the divergence is zero."""
    return [
        "every = F.log_softmax(h, -1)",
        f"logp = every.gather(-1, {c.d('y')}[..., None]).squeeze(-1)",
        "ratio = torch.exp(logp - logp.detach())",
        "divergence = (every.exp() * (every - every.detach())).sum(-1).mean()",
        f"loss = -(ratio * {c.d('advantage')}).mean() + {c['beta']!r} * divergence",
    ]


@kind(LOSS, data="y B,T,D:normal; keep B,T:coins", coupled=True)
def selected(c: Context) -> list[str]:
    return [f"loss = (h[{c.d('keep')}] - {c.d('y')}[{c.d('keep')}]).pow(2).mean()"]


@kind(LOSS, temperature=(0.7, 1.5), draws=True)
def sampled(c: Context) -> list[str]:
    """REINFORCE on tokens that were drawn at a temperature."""
    return [
        f"scaled = h / {c['temperature']!r}",
        "picked = torch.multinomial(torch.softmax(scaled.detach(), -1).flatten(0, 1), 1)",
        "loss = -F.log_softmax(scaled, -1).flatten(0, 1).gather(-1, picked).mean()",
    ]


# Steps: how a loss becomes gradients.


@kind(STEP)
def whole(c: Context) -> list[str]:
    return ["loss = loss_of(p, d, t)", "loss.backward()", 'taps["loss"] = loss.detach()']


@kind(STEP)
def accumulated(c: Context) -> list[str]:
    return [
        "total = 0.0",
        f"for i in range({c.batch // 2}):",
        "    part = {name: value[2 * i : 2 * i + 2] for name, value in d.items()}",
        f"    loss = loss_of(p, part, t) / {c.batch // 2}",
        "    loss.backward()",
        "    total = total + loss.detach()",
        'taps["loss"] = total',
    ]


@kind(STEP, lr=(0.1, 0.03))
def second(c: Context) -> list[str]:
    """The second step of a run, after a first one of plain descent."""
    return [
        "loss_of(p, d, t).backward()",
        "with torch.no_grad():",
        "    for value in p.values():",
        f"        value.sub_({c['lr']!r} * value.grad)",
        "        value.grad = None",
        "loss = loss_of(p, d, t)",
        "loss.backward()",
        'taps["loss"] = loss.detach()',
    ]


@kind(STEP, scale=(1024.0, 65536.0))
def scaled(c: Context) -> list[str]:
    return [
        "loss = loss_of(p, d, t)",
        f"(loss * {c['scale']!r}).backward()",
        "for value in p.values():",
        f"    value.grad.mul_({1 / c['scale']!r})",
        'taps["loss"] = loss.detach()',
    ]


@kind(STEP, norm=(0.5, 0.1))
def clipped(c: Context) -> list[str]:
    return [
        "loss = loss_of(p, d, t)",
        "loss.backward()",
        "norm = torch.stack([value.grad.norm() for value in p.values()]).norm()",
        f"coefficient = torch.clamp({c['norm']!r} / (norm + 1e-6), max=1.0)",
        "for value in p.values():",
        "    value.grad.mul_(coefficient)",
        'taps["loss"] = loss.detach()',
        'taps["norm"] = norm.detach()',
    ]


# Optimizers.


@kind(OPTIMIZER, lr=(0.1, 0.03))
def sgd(c: Context) -> list[str]:
    return [f"torch.optim.SGD(p.values(), lr={c['lr']!r}, foreach=False).step()"]


@kind(OPTIMIZER, lr=(0.1, 0.03), momentum=(0.9, 0.95), tables="buffer P:state")
def momentum(c: Context) -> list[str]:
    return [
        "for name, value in p.items():",
        f'    buffer = t["buffer:" + name].mul_({c["momentum"]!r}).add_(value.grad)',
        f"    value.add_(buffer, alpha=-{c['lr']!r})",
        '    taps["state:" + name] = buffer',
    ]


@kind(OPTIMIZER, lr=(1e-3, 1e-2), eps=(1e-8, 1e-6), decay=(0.01, 0.1))
def adamw(c: Context) -> list[str]:
    settings = f"lr={c['lr']!r}, betas=(0.9, 0.999), eps={c['eps']!r}, weight_decay={c['decay']!r}"
    return [f"torch.optim.AdamW(p.values(), {settings}, foreach=False).step()"]


@kind(OPTIMIZER, lr=(1e-3, 1e-2), step=(3, 10), tables="m P:state; v P:square")
def adam(c: Context) -> list[str]:
    n = c["step"]
    return [
        "for name, value in p.items():",
        '    m = t["m:" + name].mul_(0.9).add_(value.grad, alpha=0.1)',
        '    v = t["v:" + name].mul_(0.999).addcmul_(value.grad, value.grad, value=0.001)',
        f"    m_hat = m / (1.0 - 0.9 ** {n})",
        f"    v_hat = v / (1.0 - 0.999 ** {n})",
        f"    value.sub_({c['lr']!r} * m_hat / (v_hat.sqrt() + 1e-8))",
        '    taps["m:" + name], taps["v:" + name] = m, v',
    ]


@kind(OPTIMIZER, lr=(1e-2, 1e-3))
def rmsprop(c: Context) -> list[str]:
    return [f"torch.optim.RMSprop(p.values(), lr={c['lr']!r}, alpha=0.99, eps=1e-8, foreach=False).step()"]


@kind(OPTIMIZER, lr=(0.1,), decay=(0.99, 0.999), tables="ema P:state")
def averaged(c: Context) -> list[str]:
    return [
        "for name, value in p.items():",
        f"    value.sub_({c['lr']!r} * value.grad)",
        f'    taps["ema:" + name] = t["ema:" + name].mul_({c["decay"]!r}).add_(value, alpha=1.0 - {c["decay"]!r})',
    ]
