"""Mutations of inputs and layers. `c.delta` is the relative size of those that have one, from 1e-9 to 1."""

from __future__ import annotations

from .forms import KINDS, Context, mutation

# Of any layer.


@mutation("any layer", scaled=True)
def factor_applied(c: Context) -> list[str]:
    """A factor near one."""
    return [*c.lines, f"h = h * {c.factor}"]


@mutation("any layer", scaled=True)
def offset_added(c: Context) -> list[str]:
    """A small constant, added."""
    return [*c.lines, f"h = h + {c.delta!r}"]


@mutation("any layer", scaled=True)
def share_of_mean_added(c: Context) -> list[str]:
    """A share of the row's mean, added."""
    return [*c.lines, f"h = h + {c.delta!r} * h.mean(-1, keepdim=True)"]


@mutation("any layer", scaled=True)
def square_added(c: Context) -> list[str]:
    """A little of the square, as of a function that is not quite the right one."""
    return [*c.lines, f"h = h + {c.delta!r} * h * h"]


@mutation("any layer", scaled=True)
def neighbour_leaks(c: Context) -> list[str]:
    """A little of the position before."""
    return [*c.lines, f"h = h + {c.delta!r} * h.roll(1, 1)"]


@mutation("any layer", scaled=True)
def one_element_scaled(c: Context) -> list[str]:
    """One feature of one position is off."""
    return [*c.lines, "wrong = torch.zeros_like(h)", f"wrong[0, 1, 2] = {c.delta!r}", "h = h + h * wrong"]


@mutation("any layer", scaled=True)
def gradient_scaled(c: Context) -> list[str]:
    """The value is right, its gradient is scaled."""
    return [*c.lines, f"h = h + {c.delta!r} * (h - h.detach())"]


@mutation("any layer", causes=("MATHEMATICS", "STRUCTURE"), after=True)
def branch_detached(c: Context) -> list[str]:
    """No gradient passes."""
    return [*c.lines, "h = h.detach()"]


@mutation("any layer", after=True)
def positions_shifted(c: Context) -> list[str]:
    """Positions off by one."""
    return [*c.lines, "h = h.roll(1, 1)"]


@mutation("any layer")
def tile_dropped(c: Context) -> list[str]:
    """The last features are lost."""
    return [*c.lines, "h = torch.cat([h[..., :-1], torch.zeros_like(h[..., :1])], -1)"]


@mutation("any layer")
def layer_applied_twice(c: Context) -> list[str]:
    """A block called twice."""
    return [*c.lines, *c.lines]


@mutation("any layer", causes=("MATHEMATICS", "STRUCTURE"), after=True)
def layer_left_out(c: Context) -> list[str]:
    """A block that does nothing."""
    return ["h = h * 1.0"]


@mutation("any layer")
def layer_on_one_row(c: Context) -> list[str]:
    """Only the first row of the batch is treated."""
    return ["kept = h", *c.lines, "h = torch.cat([h[:1], kept[1:]])"]


@mutation("any layer")
def values_clamped(c: Context) -> list[str]:
    """A limit that was left in."""
    return [*c.lines, "h = h.clamp(-0.5, 0.5)"]


# Inputs.


@mutation("pixels", scaled=True)
def deviation_off(c: Context) -> list[str]:
    """The deviation of the pixels is off."""
    return [f"h = ({c.d('x')}.float() / 255.0 - 0.485) / {c.off(0.229)}"]


@mutation("pixels")
def levels_256(c: Context) -> list[str]:
    """256 in place of 255."""
    return [f"h = ({c.d('x')}.float() / 256.0 - 0.485) / 0.229"]


@mutation("hashed")
def hash_without_shift(c: Context) -> list[str]:
    """The key's offset is lost."""
    lines = KINDS["hashed"].form(c)
    return [lines[0].replace(" + 7)", " + 8)"), *lines[1:]]


@mutation("embedding", scaled=True)
def embedding_scaled(c: Context) -> list[str]:
    """Rows are scaled."""
    return [f"h = F.embedding({c.d('tokens')}, {c.p('table')}) * {c.factor}"]


@mutation("embedding")
def tokens_off_by_one(c: Context) -> list[str]:
    """The next token's row."""
    return [f"h = F.embedding(({c.d('tokens')} + 1) % {c.p('table')}.shape[0], {c.p('table')})"]


# Layers.


@mutation("linear", causes=("MATHEMATICS", "STRUCTURE"))
def bias_forgotten(c: Context) -> list[str]:
    """No bias."""
    return [f"h = F.linear(h, {c.p('w')})"]


@mutation("linear")
def weight_transposed(c: Context) -> list[str]:
    """The weight the wrong way round."""
    return [f"h = F.linear(h, {c.p('w')}.t(), {c.p('b')})"]


@mutation("linear", scaled=True)
def bias_scaled(c: Context) -> list[str]:
    """The bias is scaled."""
    return [f"h = F.linear(h, {c.p('w')}, {c.p('b')} * {c.factor})"]


@mutation("mlp")
def residual_forgotten(c: Context) -> list[str]:
    """The branch around the layer is missing."""
    return [f"u = F.relu(F.linear(h, {c.p('up')}))", f"h = F.linear(u, {c.p('down')})"]


@mutation("mlp", scaled=True)
def relu_leaks(c: Context) -> list[str]:
    """A little of what is negative passes."""
    return [
        f"u = F.leaky_relu(F.linear(h, {c.p('up')}), {abs(c.delta)!r})",
        f"h = h + F.linear(u, {c.p('down')})",
    ]


@mutation("gelu")
def gelu_approximated(c: Context) -> list[str]:
    """The tanh form where the exact one is meant: up to 5e-4."""
    return ['h = F.gelu(h, approximate="tanh")']


@mutation("gelu_tanh", scaled=True)
def gelu_coefficient(c: Context) -> list[str]:
    """The cubic term's coefficient is off."""
    return [
        f"inner = math.sqrt(2.0 / math.pi) * (h + {c.off(0.044715)} * h.pow(3))",
        "h = 0.5 * h * (1.0 + torch.tanh(inner))",
    ]


@mutation("silu", scaled=True)
def silu_slope(c: Context) -> list[str]:
    """x sigmoid(b x) with b not one."""
    return [f"h = h * torch.sigmoid(h * {c.factor})"]


@mutation("tanh")
def tanh_softsign(c: Context) -> list[str]:
    """Another function of the same shape."""
    return ["h = h / (1.0 + h.abs())"]


@mutation("softplus", scaled=True)
def softplus_slope(c: Context) -> list[str]:
    """softplus with another beta."""
    return [f"h = F.softplus(h, beta={c.factor})"]


@mutation("layer_norm", scaled=True)
def norm_eps_off(c: Context) -> list[str]:
    """Another eps."""
    return [f"h = F.layer_norm(h, ({c.width},), {c.p('g')}, {c.p('b')}, {c.off(c['eps'])})"]


@mutation("layer_norm")
def norm_unbiased(c: Context) -> list[str]:
    """The variance divided by n - 1."""
    return [
        f"h = (h - h.mean(-1, keepdim=True)) / (h.var(-1, keepdim=True) + {c['eps']!r}).sqrt()",
        f"h = h * {c.p('g')} + {c.p('b')}",
    ]


@mutation("layer_norm")
def norm_eps_outside(c: Context) -> list[str]:
    """eps beside the root in place of inside."""
    return [
        "variance, middle = torch.var_mean(h, -1, correction=0, keepdim=True)",
        f"h = (h - middle) / (variance.sqrt() + {c['eps']!r}) * {c.p('g')} + {c.p('b')}",
    ]


@mutation("rms_norm")
def rms_one_forgotten(c: Context) -> list[str]:
    """A weight that is meant as 1 + w."""
    return [f"h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + {c['eps']!r}) * (1.0 + {c.p('g')})"]


@mutation("rms_norm", scaled=True)
def rms_eps_off(c: Context) -> list[str]:
    """Another eps."""
    return [f"h = F.rms_norm(h, ({c.width},), {c.p('g')}, {c.off(c['eps'])})"]


@mutation("rms_norm")
def rms_without_eps(c: Context) -> list[str]:
    """No eps at all."""
    return [f"h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True)) * {c.p('g')}"]


@mutation("batch_norm_eval", scaled=True)
def running_variance_off(c: Context) -> list[str]:
    """The running variance is scaled, as by n / (n - 1)."""
    return [
        f"h = (h - {c.t('mean')}) * torch.rsqrt({c.t('var')} * {c.factor} + {c['eps']!r}) * {c.p('g')} + {c.p('b')}",
    ]


@mutation("batch_norm_eval")
def running_eps_left_out(c: Context) -> list[str]:
    """No eps beside the running variance."""
    return [f"h = (h - {c.t('mean')}) * torch.rsqrt({c.t('var')}) * {c.p('g')} + {c.p('b')}"]


def _qkv(c: Context) -> str:
    return f"q, k, v = (F.linear(h, w) for w in ({c.p('q')}, {c.p('k')}, {c.p('v')}))"


@mutation("attention", scaled=True)
def attention_scale_off(c: Context) -> list[str]:
    """Another scale of the scores."""
    scale = c.off(c.width**-0.5)
    return [_qkv(c), f"h = h + F.scaled_dot_product_attention(q, k, v, is_causal={c['causal']}, scale={scale})"]


@mutation("attention")
def attention_unscaled(c: Context) -> list[str]:
    """No scale."""
    return [_qkv(c), f"h = h + F.scaled_dot_product_attention(q, k, v, is_causal={c['causal']}, scale=1.0)"]


@mutation("attention", needs=lambda o: o["causal"])
def attention_sees_next(c: Context) -> list[str]:
    """Each position sees the next one too."""
    return [
        _qkv(c),
        f"seen = torch.ones({c.time}, {c.time}).tril(1).bool()",
        "h = h + F.scaled_dot_product_attention(q, k, v, attn_mask=seen)",
    ]


@mutation("attention", needs=lambda o: o["causal"], scaled=True)
def attention_mask_term(c: Context) -> list[str]:
    """Beside the smallest number, the additive mask holds a small wrong term."""
    return [
        _qkv(c),
        f"mask = torch.full(({c.time}, {c.time}), torch.finfo(torch.float32).min).triu(1)",
        f"mask[:, 0] = {c.delta!r}",
        "h = h + F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    ]


@mutation("attention")
def attention_softmax_over_queries(c: Context) -> list[str]:
    """The softmax over the wrong dimension."""
    mask = f"scores = scores + torch.full(({c.time}, {c.time}), -30.0).triu(1)"
    return [
        _qkv(c),
        f"scores = q @ k.mT / math.sqrt({c.width})",
        *([mask] if c["causal"] else []),
        "h = h + torch.softmax(scores, 1) @ v",
    ]


@mutation("watched")
def infinities_elsewhere(c: Context) -> list[str]:
    """Each position sees the next one too: infinities stand elsewhere."""
    return [line.replace("triu(1)", "triu(2)") for line in KINDS["watched"].form(c)]


@mutation("watched", scaled=True)
def one_score_off(c: Context) -> list[str]:
    """One score beside infinities is off."""
    first, *rest = KINDS["watched"].form(c)
    off = [f"off = torch.zeros({c.time}, {c.time})", f"off[1, 0] = {c.delta!r}", "scores = scores + scores * off"]
    return [first, *off, *rest]


@mutation("convolution")
def kernel_reversed(c: Context) -> list[str]:
    """A true convolution where a correlation is meant."""
    return [f"h = F.conv1d(h.transpose(1, 2), {c.p('w')}.flip(2), {c.p('b')}, padding=1).transpose(1, 2)"]


@mutation("convolution")
def borders_repeated(c: Context) -> list[str]:
    """Borders hold their neighbours in place of zeros."""
    return [
        "wide = torch.cat([h[:, :1], h, h[:, -1:]], 1)",
        f"h = F.conv1d(wide.transpose(1, 2), {c.p('w')}, {c.p('b')}).transpose(1, 2)",
    ]


@mutation("residual", scaled=True)
def residual_factor_off(c: Context) -> list[str]:
    """Another factor of the branch."""
    return [f"h = h + {c.off(c['eps'])} * torch.tanh(F.linear(h, {c.p('w')}))"]


@mutation("rotary", scaled=True)
def rotary_base_off(c: Context) -> list[str]:
    """Another base of the frequencies."""
    lines = KINDS["rotary"].form(c)
    return [lines[0].replace(repr(c["base"]), c.off(c["base"])), *lines[1:]]


@mutation("rotary")
def rotary_position_off(c: Context) -> list[str]:
    """Positions that start at one."""
    lines = KINDS["rotary"].form(c)
    return [lines[0], f"angle = torch.outer(torch.arange(1, {c.time + 1}).float(), freq)", *lines[2:]]


@mutation("rotary")
def rotary_sign(c: Context) -> list[str]:
    """Turned the other way."""
    lines = KINDS["rotary"].form(c)
    return [*lines[:-1], "h = torch.cat([a * angle.cos() + b * angle.sin(), b * angle.cos() - a * angle.sin()], -1)"]


@mutation("positions", scaled=True)
def frequency_off(c: Context) -> list[str]:
    """Another frequency."""
    return [
        f"place = torch.arange({c.time}).float()[:, None] * {c.off(0.3)}",
        f"h = h + torch.sin(place + torch.arange({c.width}).float() * 0.7)",
    ]


@mutation("dropout")
def dropout_unscaled(c: Context) -> list[str]:
    """What is kept is not scaled up."""
    return [f"h = h * torch.empty(h.shape).bernoulli_(1 - {c['p']!r})"]


@mutation("dropout", scaled=True)
def dropout_scale_off(c: Context) -> list[str]:
    """What is kept is scaled by a little more or less."""
    return [f"h = h * torch.empty(h.shape).bernoulli_(1 - {c['p']!r}) * {c.off(1 / (1 - c['p']))}"]


@mutation("noise", scaled=True)
def noise_deviation_off(c: Context) -> list[str]:
    """Another standard deviation."""
    return [f"h = h + torch.empty(h.shape).normal_(0.0, {c.off(c['std'])})"]


@mutation("noise", scaled=True)
def noise_mean_off(c: Context) -> list[str]:
    """A mean that is not zero."""
    return [f"h = h + torch.normal(torch.zeros(h.shape) + {c.delta!r}, {c['std']!r})"]


@mutation("jitter", scaled=True)
def jitter_limit_off(c: Context) -> list[str]:
    """Another upper limit."""
    return [f"h = h * (1.0 + torch.empty(h.shape).uniform_({c['low']!r}, {c.off(c['high'])}))"]


@mutation("two_draws", scaled=True)
def second_draw_scaled(c: Context) -> list[str]:
    """The second draw has another weight."""
    lines = KINDS["two_draws"].form(c)
    return [*lines[:-1], f"h = h + 0.1 * one + {c.off(0.2)} * (two - 0.5)"]


@mutation("two_draws")
def draw_used_twice(c: Context) -> list[str]:
    """The first draw in place of the second."""
    lines = KINDS["two_draws"].form(c)
    return [*lines[:-1], "h = h + 0.1 * one + 0.2 * (one - 0.5)"]


@mutation("mask")
def mask_inverted(c: Context) -> list[str]:
    """The mask the other way round."""
    return [f"h = h.masked_fill(~{c.t('mask')}, 0.0)"]


@mutation("mask", scaled=True)
def mask_not_zero(c: Context) -> list[str]:
    """What is masked is small in place of zero."""
    return [f"h = h.masked_fill({c.t('mask')}, {c.delta!r})"]


@mutation("quantized")
def quantized_one_bit_less(c: Context) -> list[str]:
    """A bit too few."""
    lines = KINDS["quantized"].form(c)
    top = 2 ** (c["bits"] - 1) - 1
    return [line.replace(f"{top}", f"{top // 2}") for line in lines]


@mutation("quantized", scaled=True)
def quantized_step_off(c: Context) -> list[str]:
    """Codes are scaled back by another step."""
    lines = KINDS["quantized"].form(c)
    return [*lines[:3], f"w = w + (codes * (step * {c.factor}) - w).detach()", lines[4]]


@mutation("quantized")
def quantized_floored(c: Context) -> list[str]:
    """Rounded down in place of to the nearest."""
    lines = KINDS["quantized"].form(c)
    return [line.replace("torch.round(", "torch.floor(") for line in lines]


@mutation("top_k")
def top_k_one_less(c: Context) -> list[str]:
    """One element too few."""
    lines = KINDS["top_k"].form(c)
    return [lines[0].replace(f"topk({c['k']}", f"topk({c['k'] - 1}"), lines[1]]


@mutation("top_k", scaled=True)
def top_k_temperature(c: Context) -> list[str]:
    """The weights at another temperature."""
    lines = KINDS["top_k"].form(c)
    return [lines[0], lines[1].replace("torch.softmax(values, -1)", f"torch.softmax(values * {c.factor}, -1)")]


@mutation("gated", scaled=True)
def gate_offset(c: Context) -> list[str]:
    """The gate's argument is shifted."""
    return [f"h = h * torch.sigmoid(F.linear(h, {c.p('gate')}) + {c.delta!r})"]


@mutation("softmax", scaled=True)
def softmax_temperature(c: Context) -> list[str]:
    """Another temperature."""
    return [f"h = h + torch.softmax(h * {c.factor}, -1)"]


@mutation("softmax")
def softmax_over_time(c: Context) -> list[str]:
    """Over the wrong dimension."""
    return ["h = h + torch.softmax(h, 1)"]


@mutation("unit", scaled=True)
def unit_with_eps(c: Context) -> list[str]:
    """Something is added below the root."""
    return [f"h = h * torch.rsqrt((h * h).sum(-1, keepdim=True) + {abs(c.delta)!r})"]


@mutation("pooled")
def pooled_by_mean(c: Context) -> list[str]:
    """The mean in place of the maximum."""
    return ["h = h + h.mean(1, keepdim=True)"]


@mutation("summed")
def summed_exclusive(c: Context) -> list[str]:
    """Without the position itself."""
    return ["h = h + 0.1 * (h.cumsum(1) - h)"]


@mutation("resized", scaled=True)
def resize_weight_off(c: Context) -> list[str]:
    """One coefficient of the matrix is off."""
    weights = c.t("weights")
    return [
        f"off = torch.zeros_like({weights})",
        f"off[1, 1] = {c.delta!r}",
        f"h = h + (({weights} + {weights} * off) @ h).mean(1, keepdim=True)",
    ]


@mutation("inplace")
def inplace_order(c: Context) -> list[str]:
    """Multiplied before the addition."""
    return [f"h = h * {c.p('s')}", "h.mul_(0.7)", "h.add_(0.3)"]


@mutation("inplace", scaled=True)
def inplace_constant(c: Context) -> list[str]:
    """Another constant, added in place."""
    return [f"h = h * {c.p('s')}", f"h.add_({c.off(0.3)})", "h.mul_(0.7)"]


@mutation("checkpointed", scaled=True)
def checkpoint_scaled(c: Context) -> list[str]:
    """What is computed again is scaled."""
    inner = f"torch.tanh(F.linear(x, {c.p('w')}) * {c.factor}) + x"
    return [f"h = checkpoint(lambda x: {inner}, h, use_reentrant=False)"]


@mutation("floors", scaled=True)
def floors_step_off(c: Context) -> list[str]:
    """Bins are scaled back by another width."""
    return [f"h = h + {c.off(0.125)} * torch.floor(h.detach() * 4.0)"]


@mutation("floors")
def floors_truncated(c: Context) -> list[str]:
    """Towards zero in place of down."""
    return ["h = h + 0.125 * torch.trunc(h.detach() * 4.0)"]
