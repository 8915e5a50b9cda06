"""Rewrites that compute something before the step, as when a model is loaded, and keep it in a table."""

from __future__ import annotations

from .forms import PREPARE, Context, rewrite


def _early(*lines: str) -> list[str]:
    return [PREPARE + line for line in lines]


def _turned(c: Context) -> list[str]:
    half = c.width // 2
    cos, sin = c.t("cos"), c.t("sin")
    return [
        f"a, b = h[..., :{half}], h[..., {half}:]",
        f"h = torch.cat([a * {cos} - b * {sin}, a * {sin} + b * {cos}], -1)",
    ]


@rewrite("rotary")
def rotary_kept(c: Context) -> list[str]:
    """The table that the step would compute, kept in a buffer: the same bits."""
    half = c.width // 2
    return [
        *_early(
            f"freq = {c['base']!r} ** (-torch.arange(0, {half}).float() / {half})",
            f"angle = torch.outer(torch.arange({c.time}).float(), freq)",
            f"{c.t('cos')}, {c.t('sin')} = angle.cos(), angle.sin()",
        ),
        *_turned(c),
    ]


@rewrite("rotary")
def rotary_kept_from_numpy(c: Context) -> list[str]:
    """The table computed by numpy in fp64 and rounded at the end: units in the last place apart."""
    half = c.width // 2
    return [
        *_early(
            f"freq = np.exp(np.arange({half}) * (-math.log({c['base']!r}) / {half}))",
            f"angle = np.outer(np.arange({c.time}), freq)",
            f"{c.t('cos')}, {c.t('sin')} = (torch.from_numpy(f(angle)).float() for f in (np.cos, np.sin))",
        ),
        *_turned(c),
    ]


@rewrite("positions")
def positions_kept(c: Context) -> list[str]:
    """A table of positions, computed otherwise and once."""
    table = f"[[math.sin(i * 0.3 + j * 0.7) for j in range({c.width})] for i in range({c.time})]"
    return [*_early(f"{c.t('table')} = torch.tensor({table})"), f"h = h + {c.t('table')}"]


@rewrite("batch_norm_eval")
def norm_folded_at_load(c: Context) -> list[str]:
    """Running statistics folded into a factor and a shift when the model was loaded."""
    mean, var, root, shift = (c.t(name) for name in ("mean", "var", "root", "shift"))
    return [
        *_early(
            f"{root} = torch.rsqrt({var} + {c['eps']!r})",
            f"{shift} = -{mean} * {root}",
        ),
        f"h = (h * {root} + {shift}) * {c.p('g')} + {c.p('b')}",
    ]


@rewrite("resized")
def resized_at_load(c: Context) -> list[str]:
    """Coefficients averaged when the model was loaded."""
    return [
        *_early(f"{c.t('mean')} = {c.t('weights')}.mean(0, keepdim=True)"),
        f"h = h + {c.t('mean')} @ h",
    ]


@rewrite("pixels")
def levels_at_load(c: Context) -> list[str]:
    """The values of all bytes, computed in fp64 when the model was loaded."""
    return [
        *_early(f"{c.t('levels')} = torch.tensor([(i / 255 - 0.485) / 0.229 for i in range(256)])"),
        f"h = F.embedding({c.d('x')}.long(), {c.t('levels')}[:, None]).squeeze(-1)",
    ]


@rewrite("mask")
def mask_at_load(c: Context) -> list[str]:
    """The mask as numbers, made when the model was loaded."""
    return [*_early(f"{c.t('kept')} = (~{c.t('mask')}).float()"), f"h = h * {c.t('kept')}"]


@rewrite("damped")
def constant_as_tensor(c: Context) -> list[str]:
    """A constant kept in a tensor without dimensions."""
    return [*_early(f"{c.t('scale')} = torch.tensor({c['scale']!r})"), f"h = h * {c.t('scale')} + torch.sigmoid(h)"]


@rewrite("damped")
def constant_as_row(c: Context) -> list[str]:
    """A constant as a row of equal numbers, one for each feature."""
    return [f"h = torch.addcmul(torch.sigmoid(h), h, torch.full(({c.width},), {c['scale']!r}))"]


@rewrite("attention", needs=lambda o: o["causal"])
def mask_of_attention_at_load(c: Context) -> list[str]:
    """An additive mask made when the model was loaded."""
    return [
        *_early(f'{c.t("seen")} = torch.full(({c.time}, {c.time}), float("-inf")).triu(1)'),
        f"q, k, v = (F.linear(h, w) for w in ({c.p('q')}, {c.p('k')}, {c.p('v')}))",
        f"h = h + F.scaled_dot_product_attention(q, k, v, attn_mask={c.t('seen')})",
    ]
