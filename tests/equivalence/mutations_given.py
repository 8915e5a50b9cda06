"""Mutations of what a step is given: parameters, data, tables, state."""

from __future__ import annotations

from .forms import KINDS, PREPARE, Context, mutation

LEAF = ("LEAF_MISMATCH", "MATHEMATICS")


@mutation("linear", scaled=True, causes=LEAF)
def initialized_wider(c: Context) -> list[str]:
    """Weights of another standard deviation."""
    return [f"{PREPARE}{c.p('w')}.mul_({c.factor})", *KINDS["linear"].form(c)]


@mutation("features", scaled=True, causes=LEAF, after=True)
def one_input_off(c: Context) -> list[str]:
    """One number of the data is off."""
    return [f"{PREPARE}{c.d('x')}[0, 1, 2] = {c.d('x')}[0, 1, 2] * {c.factor}", *KINDS["features"].form(c)]


@mutation("mse", scaled=True, causes=LEAF, after=True)
def one_label_off(c: Context) -> list[str]:
    """One label is off."""
    return [f"{PREPARE}{c.d('y')}[0, 1, 2] = {c.d('y')}[0, 1, 2] * {c.factor}", *KINDS["mse"].form(c)]


@mutation("cross_entropy", causes=LEAF, after=True)
def one_class_off(c: Context) -> list[str]:
    """One class is another."""
    y = c.d("y")
    return [f"{PREPARE}{y}[0, 1] = ({y}[0, 1] + 1) % {c.width}", *KINDS["cross_entropy"].form(c)]


@mutation("momentum", scaled=True, causes=LEAF)
def state_given_off(c: Context) -> list[str]:
    """The buffers that the step starts from are scaled."""
    return [
        f"{PREPARE}for name in p:",
        f'{PREPARE}    t["buffer:" + name].mul_({c.factor})',
        *KINDS["momentum"].form(c),
    ]


@mutation("batch_norm_eval", scaled=True, causes=LEAF)
def running_mean_off(c: Context) -> list[str]:
    """The running mean that the model was loaded with is scaled."""
    return [f"{PREPARE}{c.t('mean')}.mul_({c.factor})", *KINDS["batch_norm_eval"].form(c)]


@mutation("rotary", scaled=True)
def kept_table_off(c: Context) -> list[str]:
    """A table that was kept, of another base."""
    half = c.width // 2
    cos, sin = c.t("cos"), c.t("sin")
    return [
        f"{PREPARE}freq = {c.off(c['base'])} ** (-torch.arange(0, {half}).float() / {half})",
        f"{PREPARE}angle = torch.outer(torch.arange({c.time}).float(), freq)",
        f"{PREPARE}{cos}, {sin} = angle.cos(), angle.sin()",
        f"a, b = h[..., :{half}], h[..., {half}:]",
        f"h = torch.cat([a * {cos} - b * {sin}, a * {sin} + b * {cos}], -1)",
    ]


@mutation("positions", scaled=True)
def kept_element_off(c: Context) -> list[str]:
    """One element of a table that was kept is off."""
    table = f"torch.sin(torch.arange({c.time}).float()[:, None] * 0.3 + torch.arange({c.width}).float() * 0.7)"
    return [
        f"{PREPARE}{c.t('table')} = {table}",
        f"{PREPARE}{c.t('table')}[1, 2] = {c.t('table')}[1, 2] * {c.factor}",
        f"h = h + {c.t('table')}",
    ]


@mutation("damped", scaled=True)
def kept_constant_off(c: Context) -> list[str]:
    """A constant in a tensor, off."""
    return [
        f"{PREPARE}{c.t('scale')} = torch.tensor({c.off(c['scale'])})",
        f"h = h * {c.t('scale')} + torch.sigmoid(h)",
    ]


@mutation("damped", scaled=True)
def constant_off(c: Context) -> list[str]:
    """Another constant."""
    return [f"h = h * {c.off(c['scale'])} + torch.sigmoid(h)"]
