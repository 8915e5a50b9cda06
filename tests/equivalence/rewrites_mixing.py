"""Rewrites of layers that mix positions, draw, select or quantise."""

from __future__ import annotations

from .forms import Context, rewrite


def _qkv(c: Context) -> list[str]:
    return [f"q, k, v = (F.linear(h, w) for w in ({c.p('q')}, {c.p('k')}, {c.p('v')}))"]


def _masked(c: Context, line: str) -> list[str]:
    return [line] if c["causal"] else []


def _causal(c: Context) -> str:
    return f"torch.ones({c.time}, {c.time}).tril() == 0"


@rewrite("attention")
def attention_spelled(c: Context) -> list[str]:
    """Scores, softmax, weighted sum."""
    return [
        *_qkv(c),
        f"scores = q @ k.transpose(1, 2) / math.sqrt({c.width})",
        *_masked(c, f'scores = scores.masked_fill({_causal(c)}, float("-inf"))'),
        "h = h + torch.softmax(scores, -1) @ v",
    ]


@rewrite("attention")
def attention_scaled_query(c: Context) -> list[str]:
    """The scale on the queries, an additive mask of the smallest number."""
    return [
        *_qkv(c),
        f"scores = (q * {c.width} ** -0.5) @ k.mT",
        *_masked(c, f"scores = scores + torch.full(({c.time}, {c.time}), torch.finfo(torch.float32).min).triu(1)"),
        "h = h + torch.softmax(scores, -1) @ v",
    ]


@rewrite("attention")
def attention_divided_last(c: Context) -> list[str]:
    """The weighted sum is divided by the sum of weights at the end."""
    return [
        *_qkv(c),
        f"scores = torch.bmm(q, k.transpose(1, 2)) * (1.0 / math.sqrt({c.width}))",
        *_masked(c, f'scores = scores.masked_fill({_causal(c)}, float("-inf"))'),
        "e = torch.exp(scores - scores.amax(-1, keepdim=True).detach())",
        "h = h + (e @ v) / e.sum(-1, keepdim=True)",
    ]


@rewrite("attention")
def attention_fused_weights(c: Context) -> list[str]:
    """Three products as one with the weights side by side."""
    return [
        f"q, k, v = F.linear(h, torch.cat([{c.p('q')}, {c.p('k')}, {c.p('v')}])).chunk(3, -1)",
        f"h = h + F.scaled_dot_product_attention(q, k, v, is_causal={c['causal']})",
    ]


@rewrite("attention", needs=lambda o: not o["causal"])
def attention_online(c: Context) -> list[str]:
    """Keys in two blocks, the sums rescaled by the running maximum."""
    half = c.time // 2
    return [
        *_qkv(c),
        f"scores = q @ k.mT / math.sqrt({c.width})",
        f"first, second = scores[..., :{half}], scores[..., {half}:]",
        "m1, m2 = first.amax(-1, keepdim=True).detach(), second.amax(-1, keepdim=True).detach()",
        "m = torch.maximum(m1, m2)",
        "e1, e2 = torch.exp(first - m1), torch.exp(second - m2)",
        "a1, a2 = torch.exp(m1 - m), torch.exp(m2 - m)",
        "below = a1 * e1.sum(-1, keepdim=True) + a2 * e2.sum(-1, keepdim=True)",
        f"h = h + (a1 * (e1 @ v[:, :{half}]) + a2 * (e2 @ v[:, {half}:])) / below",
    ]


@rewrite("attention")
def attention_by_position(c: Context) -> list[str]:
    """One query at a time, against the keys that it may see."""
    seen = "[:, : i + 1]" if c["causal"] else ""
    return [
        *_qkv(c),
        "rows = []",
        f"for i in range({c.time}):",
        f"    scores = (q[:, i : i + 1] * k{seen}).sum(-1) / math.sqrt({c.width})",
        f"    rows.append((torch.softmax(scores, -1)[..., None] * v{seen}).sum(1))",
        "h = h + torch.stack(rows, 1)",
    ]


@rewrite("watched")
def scores_selected(c: Context) -> list[str]:
    """The mask by a selection, the scale on one factor."""
    return [
        f"scores = (0.5 * F.linear(h, {c.p('q')})) @ F.linear(h, {c.p('k')}).mT",
        f'scores = torch.where(torch.ones({c.time}, {c.time}).tril() > 0, scores, float("-inf"))',
        f't["tap:scores{c.index}"] = scores.detach()',
        "e = torch.exp(scores - scores.amax(-1, keepdim=True).detach())",
        "h = h + (e / e.sum(-1, keepdim=True)) @ h",
    ]


@rewrite("watched")
def scores_contracted(c: Context) -> list[str]:
    """Both projections as one matrix."""
    return [
        f"both = {c.p('q')}.t() @ {c.p('k')}",
        "scores = (h @ both @ h.transpose(1, 2)) / 2.0",
        f'scores = scores + torch.full(({c.time}, {c.time}), float("-inf")).triu(1)',
        f't["tap:scores{c.index}"] = scores.detach()',
        "h = h + torch.softmax(scores, -1) @ h",
    ]


@rewrite("convolution")
def convolution_unfolded(c: Context) -> list[str]:
    """Windows side by side, then one product."""
    return [
        "wide = F.pad(h.transpose(1, 2), (1, 1))",
        f"windows = torch.stack([wide[..., i : i + {c.time}] for i in range(3)], 2).flatten(1, 2)",
        f"h = ({c.p('w')}.flatten(1) @ windows).transpose(1, 2) + {c.p('b')}",
    ]


@rewrite("convolution")
def convolution_shifted(c: Context) -> list[str]:
    """One linear layer for each tap of the kernel, shifted and added."""
    return [
        "zero = torch.zeros_like(h[:, :1])",
        "before, after = torch.cat([zero, h[:, :-1]], 1), torch.cat([h[:, 1:], zero], 1)",
        f"w = {c.p('w')}",
        f"h = before @ w[..., 0].t() + h @ w[..., 1].t() + after @ w[..., 2].t() + {c.p('b')}",
    ]


@rewrite("convolution")
def convolution_by_channels(c: Context) -> list[str]:
    """Input channels in two parts, whose results are added."""
    half = c.width // 2
    return [
        "x = h.transpose(1, 2)",
        f"one = F.conv1d(x[:, :{half}], {c.p('w')}[:, :{half}], padding=1)",
        f"two = F.conv1d(x[:, {half}:], {c.p('w')}[:, {half}:], padding=1)",
        f"h = (one + two + {c.p('b')}[:, None]).transpose(1, 2)",
    ]


@rewrite("residual")
def residual_alpha(c: Context) -> list[str]:
    """The factor as an argument of the sum."""
    return [f"h = torch.add(h, torch.tanh(h @ {c.p('w')}.t()), alpha={c['eps']!r})"]


@rewrite("residual")
def residual_interpolated(c: Context) -> list[str]:
    """h + e t is lerp(h, h + t, e)."""
    return [f"h = torch.lerp(h, h + torch.tanh(F.linear(h, {c.p('w')})), {c['eps']!r})"]


def _halves(c: Context) -> str:
    half = c.width // 2
    return f"a, b = h[..., :{half}], h[..., {half}:]"


@rewrite("rotary")
def rotary_by_exp(c: Context) -> list[str]:
    """base^-x is exp(-x log base)."""
    half = c.width // 2
    return [
        f"freq = torch.exp(torch.arange({half}).float() * (-math.log({c['base']!r}) / {half}))",
        f"angle = torch.arange({c.time}).float()[:, None] * freq",
        _halves(c),
        "h = torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)",
    ]


@rewrite("rotary")
def rotary_half_turned(c: Context) -> list[str]:
    """x cos + rotate_half(x) sin, with tables over the whole width."""
    half = c.width // 2
    return [
        f"freq = 1.0 / {c['base']!r} ** (torch.arange(0, {half}).float() / {half})",
        f"angle = torch.outer(torch.arange({c.time}).float(), freq)",
        "angle = torch.cat([angle, angle], -1)",
        f"turned = torch.cat([-h[..., {half}:], h[..., :{half}]], -1)",
        "h = h * angle.cos() + turned * angle.sin()",
    ]


@rewrite("rotary")
def rotary_from_python(c: Context) -> list[str]:
    """Tables that Python computed in fp64."""
    half = c.width // 2
    entry = f"(i * {c['base']!r} ** (-j / {half}))"
    table = f"[[math.FN{entry} for j in range({half})] for i in range({c.time})]"
    return [
        f"cos, sin = torch.tensor({table.replace('FN', 'cos')}), torch.tensor({table.replace('FN', 'sin')})",
        _halves(c),
        "h = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)",
    ]


@rewrite("positions")
def positions_from_python(c: Context) -> list[str]:
    """The table from Python, in fp64, rounded at the end."""
    table = f"[[math.sin(i * 0.3 + j * 0.7) for j in range({c.width})] for i in range({c.time})]"
    return [f"h = h + torch.tensor({table})"]


@rewrite("positions")
def positions_by_angles(c: Context) -> list[str]:
    """sin(a + b) by the angles' own sines and cosines."""
    return [
        f"a, b = torch.arange({c.time}).float()[:, None] * 0.3, torch.arange({c.width}).float() * 0.7",
        "h = h + a.sin() * b.cos() + a.cos() * b.sin()",
    ]


@rewrite("dropout")
def dropout_spelled(c: Context) -> list[str]:
    """The mask drawn, scaled and multiplied."""
    return [f"kept = torch.empty(h.shape).bernoulli_(1 - {c['p']!r})", f"h = h * kept / (1 - {c['p']!r})"]


@rewrite("dropout")
def dropout_selected(c: Context) -> list[str]:
    """What is not kept is zero."""
    return [
        f"kept = torch.empty(h.shape).bernoulli_(1 - {c['p']!r}).bool()",
        f"h = torch.where(kept, h * (1.0 / (1.0 - {c['p']!r})), 0.0)",
    ]


@rewrite("noise")
def noise_drawn_in_place(c: Context) -> list[str]:
    """A normal number of mean m and deviation s is m + s z."""
    return [f"h = h + torch.empty(h.shape).normal_(0.0, {c['std']!r})"]


@rewrite("noise")
def noise_by_parameters(c: Context) -> list[str]:
    """torch.normal with a tensor of means."""
    return [f"h = h + torch.normal(torch.zeros(h.shape), {c['std']!r})"]


@rewrite("noise")
def noise_from_own_generator(c: Context) -> list[str]:
    """A generator of its own in the same state draws the same numbers."""
    return [
        "own = torch.Generator()",
        "own.set_state(torch.get_rng_state())",
        f"h = h + torch.randn(h.shape, generator=own) * {c['std']!r}",
        "torch.set_rng_state(own.get_state())",
    ]


@rewrite("jitter")
def jitter_mapped(c: Context) -> list[str]:
    """A uniform number in [a, b) is a + (b - a) u."""
    low, high = c["low"], c["high"]
    return [f"h = h + h * ({low!r} + ({high!r} - {low!r}) * torch.rand(h.shape))"]


@rewrite("two_draws")
def draws_swapped(c: Context) -> list[str]:
    """Two generators of their own may draw in any order."""
    return [
        "two = torch.rand(h.shape, generator=torch.Generator().manual_seed(2))",
        "one = torch.randn(h.shape, generator=torch.Generator().manual_seed(1))",
        "h = h + 0.1 * one + 0.2 * (two - 0.5)",
    ]


@rewrite("mask")
def mask_multiplied(c: Context) -> list[str]:
    """What is masked is multiplied by zero."""
    return [f"h = h * (1.0 - {c.t('mask')}.float())"]


@rewrite("mask")
def mask_selected(c: Context) -> list[str]:
    """A selection with the mask the other way round."""
    return [f"h = torch.where(~{c.t('mask')}, h, torch.zeros_like(h))"]


@rewrite("quantized")
def quantized_by_reciprocal(c: Context) -> list[str]:
    """Multiplied by 1/step; ties between codes may fall to either side."""
    top = 2 ** (c["bits"] - 1) - 1
    return [
        f"w = {c.p('w')}",
        f"step = w.detach().abs().max() / {top}.0",
        f"codes = torch.clamp(torch.round(w.detach() * (1.0 / step)), -{top}, {top})",
        "w = w + (codes * step - w).detach()",
        "h = h + F.linear(h, w)",
    ]


@rewrite("quantized")
def quantized_as_integers(c: Context) -> list[str]:
    """Codes as int8, which holds them."""
    top = 2 ** (c["bits"] - 1) - 1
    return [
        f"w = {c.p('w')}",
        f"step = w.detach().abs().amax() / {top}.0",
        f"codes = (w.detach() / step).round().clamp(-{top}, {top}).to(torch.int8)",
        "h = h + F.linear(h, w + (codes.float() * step - w).detach())",
    ]


@rewrite("quantized")
def quantized_unclamped(c: Context) -> list[str]:
    """The largest weight has the last code, so that nothing is clamped."""
    top = 2 ** (c["bits"] - 1) - 1
    return [
        f"w = {c.p('w')}",
        f"scale = {top}.0 / w.detach().abs().max()",
        "w = w + (torch.round(w.detach() * scale) / scale - w).detach()",
        "h = h + F.linear(h, w)",
    ]


@rewrite("top_k")
def top_k_sorted(c: Context) -> list[str]:
    """The first of a sorted row."""
    return [
        "values, places = torch.sort(h, -1, descending=True)",
        f"values, places = values[..., :{c['k']}], places[..., :{c['k']}]",
        "h = h + torch.zeros_like(h).scatter_add(-1, places, torch.softmax(values, -1) * values)",
    ]


@rewrite("top_k")
def top_k_masked(c: Context) -> list[str]:
    """All but the k largest get the weight zero; of equal ones as many as are left."""
    return [
        f"places = h.topk({c['k']}, -1)[1]",
        "kept = torch.zeros_like(h).scatter_add(-1, places, torch.ones_like(h)) > 0",
        'scores = h.masked_fill(~kept, float("-inf"))',
        "h = h + torch.softmax(scores, -1) * h",
    ]


@rewrite("gated")
def gate_by_exp(c: Context) -> list[str]:
    """sigmoid(x) is 1 / (1 + exp(-x))."""
    return [f"h = h / (1.0 + torch.exp(-F.linear(h, {c.p('gate')})))"]


@rewrite("gated")
def gate_by_tanh(c: Context) -> list[str]:
    """sigmoid(x) is (1 + tanh(x / 2)) / 2."""
    return [f"h = h * (0.5 + 0.5 * torch.tanh(0.5 * F.linear(h, {c.p('gate')})))"]


@rewrite("softmax")
def softmax_spelled(c: Context) -> list[str]:
    """Exponentials over their sum, without the maximum."""
    return ["e = torch.exp(h)", "h = h + e / e.sum(-1, keepdim=True)"]


@rewrite("softmax")
def softmax_by_logs(c: Context) -> list[str]:
    """The exponential of the log softmax."""
    return ["h = h + torch.exp(h - torch.logsumexp(h, -1, keepdim=True))"]


@rewrite("softmax")
def softmax_shifted(c: Context) -> list[str]:
    """A common shift changes no softmax."""
    return ["h = h + torch.softmax(h - 3.7, -1)"]


@rewrite("unit")
def unit_spelled(c: Context) -> list[str]:
    """Divided by the root of the sum of squares."""
    return ["h = h / h.pow(2).sum(-1, keepdim=True).clamp(min=1e-24).sqrt()"]


@rewrite("unit")
def unit_scaled_first(c: Context) -> list[str]:
    """Divided by the largest magnitude first, against overflow; rows of zeros stay as they are, with their slope."""
    return [
        "top = h.detach().abs().amax(-1, keepdim=True)",
        "h = h / torch.where(top > 0, top, torch.ones_like(top))",
        "h = h * torch.rsqrt((h * h).sum(-1, keepdim=True).clamp(min=1e-24))",
    ]


@rewrite("pooled")
def pooled_by_index(c: Context) -> list[str]:
    """The maximum and its index."""
    return ["h = h + h.max(1, keepdim=True)[0]"]


@rewrite("pooled")
def pooled_in_pairs(c: Context) -> list[str]:
    """A maximum of maxima."""
    pairs = [f"top = torch.maximum(top, h[:, {i}])" for i in range(1, c.time)]
    return ["top = h[:, 0]", *pairs, "h = h + top[:, None]"]


@rewrite("summed")
def summed_by_product(c: Context) -> list[str]:
    """A running sum is a product with a triangle of ones."""
    return [f"h = h + 0.1 * (torch.ones({c.time}, {c.time}).tril() @ h)"]


@rewrite("summed")
def summed_backwards(c: Context) -> list[str]:
    """The whole sum less what comes later."""
    return ["later = h.flip(1).cumsum(1).flip(1) - h", "h = h + 0.1 * (h.sum(1, keepdim=True) - later)"]


@rewrite("resized")
def resized_folded(c: Context) -> list[str]:
    """The mean of products is the product with the mean."""
    return [f"h = h + {c.t('weights')}.mean(0, keepdim=True) @ h"]


@rewrite("resized")
def resized_contracted(c: Context) -> list[str]:
    """One contraction in place of a batch of products."""
    return [f'h = h + torch.einsum("it,btd->bid", {c.t("weights")}, h).sum(1, keepdim=True) / 4.0']


@rewrite("inplace")
def out_of_place(c: Context) -> list[str]:
    """In place or not is no part of the mathematics."""
    return [f"h = (h * {c.p('s')} + 0.3) * 0.7"]


@rewrite("inplace")
def affine_folded(c: Context) -> list[str]:
    """Two steps as one."""
    return [f"h = h * ({c.p('s')} * 0.7) + 0.21"]


@rewrite("checkpointed")
def not_checkpointed(c: Context) -> list[str]:
    """Kept in place of computed again."""
    return [f"h = torch.tanh(F.linear(h, {c.p('w')})) + h"]


@rewrite("floors")
def floors_by_division(c: Context) -> list[str]:
    """floor(4x) is x // 0.25."""
    return ['h = h + 0.125 * torch.div(h.detach(), 0.25, rounding_mode="floor")']


@rewrite("floors")
def floors_by_trunc(c: Context) -> list[str]:
    """Truncation, less one where it went up."""
    return ["x = h.detach() * 4.0", "low = x.trunc()", "h = h + (low - (low > x).float()) / 8.0"]
