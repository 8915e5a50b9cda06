"""Rewrites of inputs and layers: other text, the same mathematics."""

from __future__ import annotations

from .forms import Context, rewrite


def _indented(lines: tuple[str, ...]) -> list[str]:
    return [f"    {line}" for line in lines]


# Of any layer.


@rewrite("any layer")
def other_layout(c: Context) -> list[str]:
    """Strides are no part of the mathematics."""
    return [*c.lines, "h = h.transpose(1, 2).contiguous().transpose(1, 2)"]


@rewrite("any layer")
def by_rows(c: Context) -> list[str]:
    """A layer that does not mix rows may take them one at a time."""
    return [
        "parts = []",
        "for h in h.split(1):",
        *_indented(c.lines),
        "    parts.append(h)",
        "h = torch.cat(parts)",
    ]


@rewrite("any layer")
def through_double(c: Context) -> list[str]:
    """A wider format holds every number of a narrower one."""
    return [*c.lines, "h = h.double().to(h.dtype)"]


@rewrite("any layer")
def recomputed(c: Context) -> list[str]:
    """Checkpointing computes the same thing again."""
    return ["def block(h):", *_indented(c.lines), "    return h", "h = checkpoint(block, h, use_reentrant=False)"]


@rewrite("any layer")
def restacked(c: Context) -> list[str]:
    """Taking a tensor apart and stacking it again moves numbers only."""
    return [*c.lines, "h = torch.stack(h.unbind(1), 1)"]


@rewrite("any layer")
def reversed_twice(c: Context) -> list[str]:
    """Two reversals are none."""
    return [*c.lines, "h = h.flip(1)", "h = h.flip(1)"]


@rewrite("any layer")
def by_identity_matrix(c: Context) -> list[str]:
    """A product with the identity matrix is exact."""
    return [*c.lines, f"h = torch.eye({c.time}) @ h"]


@rewrite("any layer")
def plus_one_minus_one(c: Context) -> list[str]:
    """What is added and taken away again cancels in real arithmetic; roundings do not."""
    return [*c.lines, "h = (h + 1.0) - 1.0"]


@rewrite("any layer")
def centred_and_back(c: Context) -> list[str]:
    """The mean is subtracted and added again."""
    return [*c.lines, "middle = h.mean()", "h = (h - middle) + middle"]


@rewrite("any layer")
def doubled_and_halved(c: Context) -> list[str]:
    """Powers of two scale without rounding."""
    return [*c.lines, "h = (h * 4.0).div(2.0)", "h = h * 0.5"]


@rewrite("any layer")
def thirded(c: Context) -> list[str]:
    """Multiplied by three and divided by three."""
    return [*c.lines, "h = h * 3.0 / 3.0"]


@rewrite("any layer")
def parts_by_sign(c: Context) -> list[str]:
    """A number is its positive part less its negative part."""
    return [*c.lines, "h = F.relu(h) - F.relu(-h)"]


@rewrite("any layer")
def selected_anyway(c: Context) -> list[str]:
    """A selection between equal things selects nothing."""
    return [*c.lines, "h = torch.where(h > 0.1, h, h)"]


@rewrite("any layer")
def zero_added(c: Context) -> list[str]:
    """Nothing times a sum is nothing."""
    return [*c.lines, "h = h + 0.0 * h.sum()"]


@rewrite("any layer")
def permuted_features(c: Context) -> list[str]:
    """An index and its inverse."""
    order = [(3 * i + 1) % c.width for i in range(c.width)]
    if len(set(order)) < c.width:
        order = [(i + 2) % c.width for i in range(c.width)]
    inverse = sorted(range(c.width), key=order.__getitem__)
    return [*c.lines, f"h = h.index_select(2, torch.tensor({order}))", f"h = h[..., {inverse}]"]


@rewrite("any layer")
def scalar_through_python(c: Context) -> list[str]:
    """A number that leaves for Python and returns is the same number."""
    return [*c.lines, "size = float(h.detach().abs().max().item())", "h = h / size * size"]


# Inputs.


@rewrite("embedding")
def one_hot_product(c: Context) -> list[str]:
    """A row is picked by a product with a row of zeros and one 1."""
    return [f"picked = F.one_hot({c.d('tokens')}, {c.p('table')}.shape[0]).float()", f"h = picked @ {c.p('table')}"]


@rewrite("embedding")
def indexed_rows(c: Context) -> list[str]:
    """Indexing is what an embedding does."""
    return [f"h = {c.p('table')}[{c.d('tokens')}]"]


@rewrite("pixels")
def folded_normalization(c: Context) -> list[str]:
    """One affine map in place of three steps."""
    return [f"h = {c.d('x')}.float() * (1.0 / (255.0 * 0.229)) - 0.485 / 0.229"]


@rewrite("pixels")
def looked_up(c: Context) -> list[str]:
    """A table of 256 values holds all that a byte can become."""
    return [
        "levels = (torch.arange(256).float() / 255.0 - 0.485) / 0.229",
        f"h = levels[{c.d('x')}.long()]",
    ]


@rewrite("pixels")
def scaled_by_reciprocal(c: Context) -> list[str]:
    """Divided by 255, or multiplied by 1/255, which rounds."""
    return [f"h = ({c.d('x')}.float() * 0.00392156862745098 - 0.485) / 0.229"]


@rewrite("hashed")
def hash_expanded(c: Context) -> list[str]:
    """Products of int64 distribute, wrapping included."""
    shift = (7 * 6364136223846793005 + 1442695040888963407 + 2**63) % 2**64 - 2**63
    return [
        f"code = {c.d('key')} * 6364136223846793005 + {shift}",
        "code = (code ^ (code >> 29)) * -4417276706812531889",
        f"h = F.embedding(code % {c.p('table')}.shape[0], {c.p('table')})",
    ]


# Layers.


@rewrite("linear")
def product_and_bias(c: Context) -> list[str]:
    """A linear layer is a product and a sum."""
    return [f"h = h @ {c.p('w')}.t() + {c.p('b')}"]


@rewrite("linear")
def fused_product(c: Context) -> list[str]:
    """addmm on rows in one batch."""
    return [f"h = torch.addmm({c.p('b')}, h.flatten(0, 1), {c.p('w')}.t()).view(-1, {c.time}, {c.width})"]


@rewrite("linear")
def contraction(c: Context) -> list[str]:
    """The same sum as an einsum."""
    return [f'h = torch.einsum("btd,ed->bte", h, {c.p("w")}) + {c.p("b")}']


@rewrite("linear")
def split_k(c: Context) -> list[str]:
    """A sum of products in two parts."""
    w, half = c.p("w"), c.width // 2
    return [f"h = F.linear(h[..., :{half}], {w}[:, :{half}]) + F.linear(h[..., {half}:], {w}[:, {half}:], {c.p('b')})"]


@rewrite("linear")
def products_summed(c: Context) -> list[str]:
    """Products first, then their sum, in any tree."""
    return [f"h = (h[..., None, :] * {c.p('w')}).sum(-1) + {c.p('b')}"]


@rewrite("linear")
def bias_as_column(c: Context) -> list[str]:
    """The bias as one more weight, of an input that is one."""
    return [
        f"wide = torch.cat([{c.p('w')}, {c.p('b')}[:, None]], 1)",
        "h = torch.cat([h, torch.ones_like(h[..., :1])], -1) @ wide.t()",
    ]


@rewrite("linear")
def transposed_product(c: Context) -> list[str]:
    """(A B)' is B' A'."""
    return [f"h = ({c.p('w')} @ h.mT).mT + {c.p('b')}"]


@rewrite("linear")
def output_columns(c: Context) -> list[str]:
    """Output features in two parts, as on two devices."""
    half = c.width // 2
    halves = [f"F.linear(h, {c.p('w')}[{s}], {c.p('b')}[{s}])" for s in (f":{half}", f"{half}:")]
    return [f"h = torch.cat([{halves[0]}, {halves[1]}], -1)"]


@rewrite("mlp")
def hidden_in_parts(c: Context) -> list[str]:
    """Hidden units in two groups, each with its own products."""
    return [
        f"first, second = {c.p('up')}.chunk(2, 0)",
        f"one, two = {c.p('down')}.chunk(2, 1)",
        "h = h + F.linear(F.relu(F.linear(h, first)), one) + F.linear(F.relu(F.linear(h, second)), two)",
    ]


@rewrite("mlp")
def relu_as_clamp(c: Context) -> list[str]:
    """relu is a clamp at zero."""
    return [f"u = F.linear(h, {c.p('up')}).clamp(min=0.0)", f"h = h + F.linear(u, {c.p('down')})"]


@rewrite("mlp")
def relu_as_mean(c: Context) -> list[str]:
    """relu is half of a number and its magnitude."""
    return [f"u = F.linear(h, {c.p('up')})", f"h = h + F.linear(0.5 * (u + u.abs()), {c.p('down')})"]


@rewrite("mlp")
def relu_as_mask(c: Context) -> list[str]:
    """relu keeps what is positive."""
    return [f"u = F.linear(h, {c.p('up')})", f"h = h + F.linear(u * (u > 0).float(), {c.p('down')})"]


@rewrite("gelu")
def gelu_by_erf(c: Context) -> list[str]:
    """gelu(x) is x/2 (1 + erf(x / sqrt 2))."""
    return ["h = 0.5 * h * (1.0 + torch.erf(h / math.sqrt(2.0)))"]


@rewrite("gelu")
def gelu_by_erfc(c: Context) -> list[str]:
    """1 + erf(x) is erfc(-x)."""
    return ["h = h * (0.5 * torch.erfc(-h * math.sqrt(0.5)))"]


@rewrite("gelu_tanh")
def gelu_spelled(c: Context) -> list[str]:
    """The tanh form, written out, with the constant that many copies have: 0.79788456."""
    return ["h = 0.5 * h * (1.0 + torch.tanh(0.79788456 * (h + 0.044715 * h * h * h)))"]


@rewrite("gelu_tanh")
def gelu_by_sigmoid(c: Context) -> list[str]:
    """(1 + tanh(x)) / 2 is sigmoid(2x)."""
    return ["h = h * torch.sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (h + 0.044715 * h.pow(3)))"]


@rewrite("gelu_tanh")
def gelu_factored(c: Context) -> list[str]:
    """x + a x^3 is x (1 + a x^2)."""
    return ["inner = math.sqrt(2.0 / math.pi) * h * (1.0 + 0.044715 * h * h)", "h = 0.5 * h * (1.0 + inner.tanh())"]


@rewrite("silu")
def silu_product(c: Context) -> list[str]:
    """silu is x sigmoid(x)."""
    return ["h = h * torch.sigmoid(h)"]


@rewrite("silu")
def silu_quotient(c: Context) -> list[str]:
    """silu is x / (1 + exp(-x))."""
    return ["h = h / (1.0 + torch.exp(-h))"]


@rewrite("silu")
def silu_by_exp2(c: Context) -> list[str]:
    """exp(x) is 2^(x log2 e), with the constant as kernels write it."""
    return ["h = h / (1.0 + torch.exp2(-1.44269504 * h))"]


@rewrite("tanh")
def tanh_by_sigmoid(c: Context) -> list[str]:
    """tanh(x) is 2 sigmoid(2x) - 1."""
    return ["h = 2.0 * torch.sigmoid(2.0 * h) - 1.0"]


@rewrite("tanh")
def tanh_by_exp(c: Context) -> list[str]:
    """tanh(x) is (1 - e) / (1 + e), e = exp(-2x)."""
    return ["e = torch.exp(-2.0 * h)", "h = (1.0 - e) / (1.0 + e)"]


@rewrite("tanh")
def tanh_by_expm1(c: Context) -> list[str]:
    """tanh(x) is m / (m + 2), m = expm1(2x)."""
    return ["m = torch.expm1(2.0 * h)", "h = m / (m + 2.0)"]


@rewrite("softplus")
def softplus_plain(c: Context) -> list[str]:
    """softplus(x) is log(1 + exp(x))."""
    return ["h = torch.log1p(torch.exp(h))"]


@rewrite("softplus")
def softplus_stable(c: Context) -> list[str]:
    """log(1 + exp(x)) is max(x, 0) + log(1 + exp(-|x|))."""
    return ["h = h.clamp(min=0.0) + torch.log1p(torch.exp(-h.abs()))"]


@rewrite("softplus")
def softplus_by_sigmoid(c: Context) -> list[str]:
    """log(1 + exp(x)) is -log sigmoid(-x)."""
    return ["h = -torch.log(torch.sigmoid(-h))"]


@rewrite("layer_norm")
def norm_two_passes(c: Context) -> list[str]:
    """Mean, then the variance about it."""
    return [
        "centred = h - h.mean(-1, keepdim=True)",
        "variance = (centred * centred).mean(-1, keepdim=True)",
        f"h = centred * torch.rsqrt(variance + {c['eps']!r}) * {c.p('g')} + {c.p('b')}",
    ]


@rewrite("layer_norm")
def norm_one_pass(c: Context) -> list[str]:
    """The variance is E[x^2] - E[x]^2."""
    return [
        "middle = h.mean(-1, keepdim=True)",
        "variance = h.pow(2).mean(-1, keepdim=True) - middle * middle",
        f"h = (h - middle) / torch.sqrt(variance + {c['eps']!r}) * {c.p('g')} + {c.p('b')}",
    ]


@rewrite("layer_norm")
def norm_by_var(c: Context) -> list[str]:
    """The framework's own biased variance."""
    return [
        "variance, middle = torch.var_mean(h, -1, correction=0, keepdim=True)",
        f"h = {c.p('g')} * (h - middle) / (variance + {c['eps']!r}).sqrt() + {c.p('b')}",
    ]


@rewrite("layer_norm")
def norm_folded(c: Context) -> list[str]:
    """Scale and shift per row, then one multiplication and one addition."""
    return [
        "middle = h.mean(-1, keepdim=True)",
        f"scale = {c.p('g')} * torch.rsqrt(h.var(-1, unbiased=False, keepdim=True) + {c['eps']!r})",
        f"h = h * scale + ({c.p('b')} - middle * scale)",
    ]


@rewrite("layer_norm")
def norm_as_group(c: Context) -> list[str]:
    """A group norm of one group, row by row."""
    flat = f"h.reshape(-1, {c.width})"
    return [f"h = F.group_norm({flat}, 1, {c.p('g')}, {c.p('b')}, {c['eps']!r}).view(h.shape)"]


@rewrite("rms_norm")
def rms_builtin(c: Context) -> list[str]:
    """The framework's own."""
    return [f"h = F.rms_norm(h, ({c.width},), {c.p('g')}, {c['eps']!r})"]


@rewrite("rms_norm")
def rms_quotient(c: Context) -> list[str]:
    """Divided by a root in place of multiplied by its reciprocal."""
    return [f"h = {c.p('g')} * (h / torch.sqrt((h * h).sum(-1, keepdim=True) / {c.width} + {c['eps']!r}))"]


@rewrite("rms_norm")
def rms_by_product(c: Context) -> list[str]:
    """The mean of squares as a product with a vector of 1/n."""
    return [
        f"share = torch.full(({c.width}, 1), 1.0 / {c.width})",
        f"h = h * ((h * h) @ share + {c['eps']!r}).pow(-0.5) * {c.p('g')}",
    ]


@rewrite("rms_norm")
def rms_by_norm(c: Context) -> list[str]:
    """The mean of squares from the Euclidean norm."""
    return [f"h = h * torch.rsqrt(h.norm(dim=-1, keepdim=True).square() / {c.width} + {c['eps']!r}) * {c.p('g')}"]


@rewrite("batch_norm_eval")
def norm_folded_into_affine(c: Context) -> list[str]:
    """In evaluation a batch norm is one affine map."""
    return [
        f"scale = {c.p('g')} / torch.sqrt({c.t('var')} + {c['eps']!r})",
        f"h = h * scale + ({c.p('b')} - {c.t('mean')} * scale)",
    ]


@rewrite("batch_norm_eval")
def norm_folded_in_double(c: Context) -> list[str]:
    """The affine map's constants computed in fp64, as when a model is loaded."""
    return [
        f"root = ({c.t('var')}.double() + {c['eps']!r}).rsqrt()",
        f"shift = (-{c.t('mean')}.double() * root).float()",
        f"h = (h * root.float() + shift) * {c.p('g')} + {c.p('b')}",
    ]


@rewrite("batch_norm_eval")
def norm_centred(c: Context) -> list[str]:
    """The formula as it is taught."""
    return [
        f"h = (h - {c.t('mean')}) / ({c.t('var')} + {c['eps']!r}).sqrt() * {c.p('g')} + {c.p('b')}",
    ]
