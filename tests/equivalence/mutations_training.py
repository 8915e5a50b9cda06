"""Mutations of losses, steps and optimizers."""

from __future__ import annotations

from .forms import KINDS, Context, mutation

# Losses.


@mutation("mse", scaled=True)
def loss_factor(c: Context) -> list[str]:
    """The loss is scaled."""
    return [f"loss = F.mse_loss(h, {c.d('y')}) * {c.factor}"]


@mutation("mse")
def loss_count_off(c: Context) -> list[str]:
    """Divided by one less than the number of elements."""
    return [f"apart = h - {c.d('y')}", "loss = apart.square().sum() / (apart.numel() - 1)"]


@mutation("cross_entropy", scaled=True)
def label_smoothed(c: Context) -> list[str]:
    """A little label smoothing."""
    smoothing = f"label_smoothing={min(abs(c.delta), 0.9)!r}"
    return [f"loss = F.cross_entropy(h.flatten(0, 1), {c.d('y')}.flatten(), {smoothing})"]


@mutation("cross_entropy", scaled=True)
def logits_regularized(c: Context) -> list[str]:
    """A z-loss that was left in."""
    lines = KINDS["cross_entropy"].form(c)
    return [lines[0] + f" + {c.delta!r} * torch.logsumexp(h, -1).square().mean()"]


@mutation("masked_cross_entropy")
def ignored_counted(c: Context) -> list[str]:
    """Divided by all rows, ignored ones included."""
    return [
        f"y = {c.d('y')}.flatten()",
        'loss = F.cross_entropy(h.flatten(0, 1), y, ignore_index=-100, reduction="sum") / y.numel()',
    ]


@mutation("masked_cross_entropy")
def mean_of_means(c: Context) -> list[str]:
    """The mean of rows' means, whose lengths differ."""
    return [
        "losses = []",
        f"for row, y in zip(h, {c.d('y')}):",
        "    losses.append(F.cross_entropy(row, y, ignore_index=-100))",
        "loss = torch.stack(losses).mean()",
    ]


@mutation("huber", scaled=True)
def huber_delta_off(c: Context) -> list[str]:
    """Another delta."""
    return [f"loss = F.huber_loss(h, {c.d('y')}, delta={c.off(c['delta'])})"]


@mutation("huber")
def huber_as_smooth(c: Context) -> list[str]:
    """The smooth L1 loss, which is scaled otherwise."""
    d = c["delta"]
    return [f"loss = F.smooth_l1_loss(h, {c.d('y')}, beta={d / 2!r})"]


@mutation("l1", scaled=True)
def l1_rounded_off(c: Context) -> list[str]:
    """The kink is rounded off."""
    return [f"loss = ((h - {c.d('y')}).square() + {abs(c.delta)!r}).sqrt().mean()"]


@mutation("binary", scaled=True)
def positives_weighted(c: Context) -> list[str]:
    """Positives have another weight."""
    return [
        f"y = {c.d('y')}",
        f"loss = (F.softplus(h) - h * y + {c.delta!r} * y * F.softplus(-h)).mean()",
    ]


@mutation("distillation")
def temperature_not_squared(c: Context) -> list[str]:
    """The factor tau where tau^2 is meant."""
    tau = c["temperature"]
    lines = KINDS["distillation"].form(c)
    return [*lines[:-1], lines[-1].replace(f"* {tau * tau!r}", f"* {tau!r}")]


@mutation("distillation", scaled=True)
def student_temperature(c: Context) -> list[str]:
    """The student at another temperature."""
    lines = KINDS["distillation"].form(c)
    return [lines[0], f"student = F.log_softmax(h / {c.off(c['temperature'])}, -1)", lines[2]]


@mutation("policy")
def advantages_biased(c: Context) -> list[str]:
    """numpy's deviation divides by n."""
    lines = KINDS["policy"].form(c)
    spread = "(reward.std(correction=0) + 1e-8)"
    return [line.replace("(reward.std() + 1e-8)", spread) for line in lines]


@mutation("policy", scaled=True)
def clip_off(c: Context) -> list[str]:
    """Another limit of the ratio."""
    lines = KINDS["policy"].form(c)
    return [line.replace(f"{1 + c['clip']!r})", f"{c.off(1 + c['clip'])})") for line in lines]


@mutation("first_policy", scaled=True)
def divergence_weight_off(c: Context) -> list[str]:
    """A share of the entropy in place of the divergence."""
    lines = KINDS["first_policy"].form(c)
    return [*lines, f"loss = loss + {c.delta!r} * (every.exp() * every).sum(-1).mean()"]


@mutation("first_policy")
def ratio_without_gradient(c: Context) -> list[str]:
    """The ratio is cut off from its gradient."""
    lines = KINDS["first_policy"].form(c)
    return [
        line.replace("ratio = torch.exp(logp - logp.detach())", "ratio = torch.exp(logp - logp).detach()")
        for line in lines
    ]


@mutation("selected")
def selection_counted_whole(c: Context) -> list[str]:
    """Divided by all rows."""
    return [
        f"weight = {c.d('keep')}.float()[..., None]",
        f"loss = ((h - {c.d('y')}).pow(2) * weight).mean()",
    ]


@mutation("sampled")
def temperature_ignored(c: Context) -> list[str]:
    """The loss ignores the temperature that tokens were drawn at."""
    lines = KINDS["sampled"].form(c)
    return [*lines[:2], lines[2].replace("F.log_softmax(scaled", "F.log_softmax(h")]


@mutation("sampled", scaled=True)
def temperature_off(c: Context) -> list[str]:
    """Another temperature of the loss."""
    lines = KINDS["sampled"].form(c)
    return [*lines[:2], lines[2].replace("F.log_softmax(scaled", f"F.log_softmax(scaled * {c.factor}")]


# Steps.


@mutation("whole", scaled=True)
def gradients_scaled(c: Context) -> list[str]:
    """Gradients are scaled after backward."""
    lines = KINDS["whole"].form(c)
    return [*lines, "for value in p.values():", f"    value.grad.mul_({c.factor})"]


@mutation("whole")
def last_row_lost(c: Context) -> list[str]:
    """The batch's last row is dropped."""
    return [
        "loss = loss_of(p, {name: value[:-1] for name, value in d.items()}, t)",
        "loss.backward()",
        'taps["loss"] = loss.detach()',
    ]


@mutation("accumulated")
def parts_not_divided(c: Context) -> list[str]:
    """Losses of parts are added and never divided."""
    lines = KINDS["accumulated"].form(c)
    return [line.replace(f" / {c.batch // 2}", "") if "loss_of" in line else line for line in lines]


@mutation("accumulated")
def first_part_repeated(c: Context) -> list[str]:
    """Each part is the first one."""
    lines = KINDS["accumulated"].form(c)
    return [line.replace("value[2 * i : 2 * i + 2]", "value[:2]") for line in lines]


@mutation("accumulated", scaled=True)
def last_part_weighs_more(c: Context) -> list[str]:
    """The last part has another weight."""
    lines = KINDS["accumulated"].form(c)
    weight = f" * (1.0 + {c.delta!r} * (i == {c.batch // 2 - 1}))"
    return [line + weight if "loss_of" in line else line for line in lines]


@mutation("second")
def gradients_not_dropped(c: Context) -> list[str]:
    """The first step's gradients are still there in the second."""
    return [line for line in KINDS["second"].form(c) if "value.grad = None" not in line]


@mutation("second", scaled=True)
def first_rate_off(c: Context) -> list[str]:
    """Another rate of the first step."""
    lines = KINDS["second"].form(c)
    return [line.replace(f"sub_({c['lr']!r}", f"sub_({c.off(c['lr'])}") for line in lines]


@mutation("scaled", scaled=True)
def scale_left(c: Context) -> list[str]:
    """The scale is taken out by a little more or less."""
    lines = KINDS["scaled"].form(c)
    return [line.replace(f"{1 / c['scale']!r}", c.off(1 / c["scale"])) for line in lines]


@mutation("scaled")
def scale_of_first_left(c: Context) -> list[str]:
    """One parameter's gradient is unscaled twice."""
    lines = KINDS["scaled"].form(c)
    return [*lines, f"next(iter(p.values())).grad.mul_({1 / c['scale']!r})"]


@mutation("clipped", scaled=True)
def clip_norm_off(c: Context) -> list[str]:
    """Another limit of the norm."""
    lines = KINDS["clipped"].form(c)
    return [line.replace(f"clamp({c['norm']!r}", f"clamp({c.off(c['norm'])}") for line in lines]


@mutation("clipped")
def clipped_each(c: Context) -> list[str]:
    """Each gradient is clipped by its own norm."""
    lines = KINDS["clipped"].form(c)
    own = f"    value.grad.mul_(torch.clamp({c['norm']!r} / (value.grad.norm() + 1e-6), max=1.0))"
    return [own if "mul_(coefficient)" in line else line for line in lines]


# Optimizers.


@mutation("sgd", scaled=True)
def rate_off(c: Context) -> list[str]:
    """Another learning rate."""
    return [f"torch.optim.SGD(p.values(), lr={c.off(c['lr'])}, foreach=False).step()"]


@mutation("sgd", scaled=True)
def decay_left_in(c: Context) -> list[str]:
    """A little weight decay."""
    return [f"torch.optim.SGD(p.values(), lr={c['lr']!r}, weight_decay={abs(c.delta)!r}, foreach=False).step()"]


@mutation("sgd", causes=("MATHEMATICS", "STRUCTURE"))
def parameter_forgotten(c: Context) -> list[str]:
    """The first parameter is missing from the optimizer."""
    return [f"torch.optim.SGD(list(p.values())[1:], lr={c['lr']!r}, foreach=False).step()"]


@mutation("momentum")
def momentum_twice(c: Context) -> list[str]:
    """The buffer is decayed when it is used, too."""
    lines = KINDS["momentum"].form(c)
    return [line.replace("value.add_(buffer,", f"value.add_(buffer * {c['momentum']!r},") for line in lines]


@mutation("momentum", scaled=True)
def momentum_off(c: Context) -> list[str]:
    """Another momentum."""
    lines = KINDS["momentum"].form(c)
    return [line.replace(f"mul_({c['momentum']!r})", f"mul_({c.off(c['momentum'])})") for line in lines]


@mutation("momentum", scaled=True)
def state_spoiled(c: Context) -> list[str]:
    """The buffer is scaled in place after its use."""
    lines = KINDS["momentum"].form(c)
    return [*lines, f"    buffer.mul_({c.factor})"]


@mutation("momentum")
def dampened(c: Context) -> list[str]:
    """The gradient enters with 1 - momentum."""
    lines = KINDS["momentum"].form(c)
    return [line.replace("add_(value.grad)", f"add_(value.grad, alpha={1 - c['momentum']!r})") for line in lines]


@mutation("adamw")
def decay_in_gradient(c: Context) -> list[str]:
    """The decay goes through the averages, as in Adam."""
    return [KINDS["adamw"].form(c)[0].replace("AdamW", "Adam")]


@mutation("adamw", scaled=True)
def adamw_eps_off(c: Context) -> list[str]:
    """Another eps."""
    return [KINDS["adamw"].form(c)[0].replace(f"eps={c['eps']!r}", f"eps={c.off(c['eps'])}")]


@mutation("adamw", scaled=True)
def adamw_decay_off(c: Context) -> list[str]:
    """Another weight decay."""
    decay = f"weight_decay={c['decay']!r}"
    return [KINDS["adamw"].form(c)[0].replace(decay, f"weight_decay={c.off(c['decay'])}")]


@mutation("adam", scaled=True)
def second_moment_decay(c: Context) -> list[str]:
    """Another decay of the second moment."""
    lines = KINDS["adam"].form(c)
    return [line.replace("mul_(0.999)", f"mul_({0.999 * (1 - abs(c.delta))!r})") for line in lines]


@mutation("adam")
def correction_off_by_one(c: Context) -> list[str]:
    """The bias correction of the step before."""
    lines = KINDS["adam"].form(c)
    return [line.replace(f"** {c['step']}", f"** {c['step'] - 1}") for line in lines]


@mutation("adam")
def eps_inside(c: Context) -> list[str]:
    """eps below the root."""
    lines = KINDS["adam"].form(c)
    return [line.replace("(v_hat.sqrt() + 1e-8)", "(v_hat + 1e-8).sqrt()") for line in lines]


@mutation("rmsprop")
def root_of_one_minus(c: Context) -> list[str]:
    """alpha and 1 - alpha change places."""
    return [KINDS["rmsprop"].form(c)[0].replace("alpha=0.99", "alpha=0.01")]


@mutation("rmsprop", scaled=True)
def rmsprop_alpha_off(c: Context) -> list[str]:
    """Another decay of the average."""
    return [KINDS["rmsprop"].form(c)[0].replace("alpha=0.99", f"alpha={0.99 * (1 - abs(c.delta))!r}")]


@mutation("averaged")
def average_of_old(c: Context) -> list[str]:
    """The average takes the weights before their update."""
    update, average = KINDS["averaged"].form(c)[1:]
    return ["for name, value in p.items():", average, update]


@mutation("averaged", scaled=True)
def average_decay_off(c: Context) -> list[str]:
    """Another decay of the average."""
    lines = KINDS["averaged"].form(c)
    return [line.replace(f"mul_({c['decay']!r})", f"mul_({c.off(c['decay'])})") for line in lines]
