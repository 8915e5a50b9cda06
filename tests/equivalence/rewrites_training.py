"""Rewrites of losses, steps and optimizers."""

from __future__ import annotations

from .forms import Context, rewrite

# Losses.


@rewrite("mse")
def mse_of_sums(c: Context) -> list[str]:
    """The sum of squares over their number."""
    return [f"apart = (h - {c.d('y')}).flatten()", "loss = apart.dot(apart) / apart.numel()"]


@rewrite("mse")
def mse_mean_of_means(c: Context) -> list[str]:
    """The mean of the means of rows of one length."""
    return [f"loss = (h - {c.d('y')}).square().mean(-1).mean(-1).mean()"]


@rewrite("mse")
def mse_expanded(c: Context) -> list[str]:
    """(h - y)^2 is h^2 - 2 h y + y^2."""
    return [f"y = {c.d('y')}", "loss = (h * h).mean() - 2.0 * (h * y).mean() + (y * y).mean()"]


@rewrite("cross_entropy")
def entropy_gathered(c: Context) -> list[str]:
    """Minus the log probability of the class."""
    return [
        "logp = torch.log_softmax(h, -1)",
        f"loss = -logp.gather(-1, {c.d('y')}[..., None]).mean()",
    ]


@rewrite("cross_entropy")
def entropy_by_logsumexp(c: Context) -> list[str]:
    """logsumexp less the class's logit."""
    return [
        f"picked = h.gather(-1, {c.d('y')}.unsqueeze(-1)).squeeze(-1)",
        "loss = (torch.logsumexp(h, -1) - picked).sum() / picked.numel()",
    ]


@rewrite("cross_entropy")
def entropy_one_hot(c: Context) -> list[str]:
    """The class as a distribution of one 1."""
    return [
        f"q = F.one_hot({c.d('y')}, {c.width}).float()",
        "loss = -(q * torch.log_softmax(h, -1)).sum(-1).mean()",
    ]


@rewrite("cross_entropy")
def entropy_of_softmax(c: Context) -> list[str]:
    """The logarithm of the softmax, taken one after the other."""
    return [
        "chosen = torch.softmax(h, -1).flatten(0, 1)",
        f"loss = -torch.log(chosen[torch.arange(chosen.shape[0]), {c.d('y')}.flatten()]).mean()",
    ]


@rewrite("masked_cross_entropy")
def ignored_by_count(c: Context) -> list[str]:
    """The sum over what counts, divided by how much that is."""
    return [
        f"y = {c.d('y')}.flatten()",
        'total = F.cross_entropy(h.flatten(0, 1), y, ignore_index=-100, reduction="sum")',
        "loss = total / (y != -100).sum()",
    ]


@rewrite("masked_cross_entropy")
def ignored_by_selection(c: Context) -> list[str]:
    """Rows that do not count are left out first."""
    return [f"y = {c.d('y')}", "loss = F.cross_entropy(h[y != -100], y[y != -100])"]


@rewrite("masked_cross_entropy")
def ignored_by_weight(c: Context) -> list[str]:
    """Rows that do not count have weight zero."""
    return [
        f"y = {c.d('y')}.flatten()",
        "weight = (y != -100).float()",
        "logp = F.log_softmax(h.flatten(0, 1), -1).gather(-1, y.clamp(min=0)[:, None]).squeeze(-1)",
        "loss = -(logp * weight).sum() / weight.sum()",
    ]


@rewrite("huber")
def huber_selected(c: Context) -> list[str]:
    """A parabola inside, a line outside."""
    d = c["delta"]
    return [
        f"apart = (h - {c.d('y')}).abs()",
        f"loss = torch.where(apart < {d!r}, 0.5 * apart * apart, {d!r} * (apart - 0.5 * {d!r})).mean()",
    ]


@rewrite("huber")
def huber_smooth(c: Context) -> list[str]:
    """delta times the smooth L1 loss."""
    return [f"loss = F.smooth_l1_loss(h, {c.d('y')}, beta={c['delta']!r}) * {c['delta']!r}"]


@rewrite("l1")
def l1_builtin(c: Context) -> list[str]:
    """The framework's own."""
    return [f"loss = F.l1_loss(h, {c.d('y')})"]


@rewrite("l1")
def l1_by_parts(c: Context) -> list[str]:
    """The magnitude as the sum of both positive parts."""
    return [f"apart = h - {c.d('y')}", "loss = (F.relu(apart) + F.relu(-apart)).sum() / apart.numel()"]


@rewrite("binary")
def binary_stable(c: Context) -> list[str]:
    """max(x, 0) - x y + log(1 + exp(-|x|))."""
    return [f"y = {c.d('y')}", "loss = (F.relu(h) - h * y + torch.log1p(torch.exp(-h.abs()))).mean()"]


@rewrite("binary")
def binary_of_sigmoid(c: Context) -> list[str]:
    """The probability first, its logarithm then."""
    return [f"loss = F.binary_cross_entropy(torch.sigmoid(h), {c.d('y')})"]


@rewrite("binary")
def binary_by_softplus(c: Context) -> list[str]:
    """softplus(x) - x y."""
    return [f"loss = (F.softplus(h) - h * {c.d('y')}).mean()"]


@rewrite("distillation")
def distillation_by_library(c: Context) -> list[str]:
    """kl_div on log probabilities."""
    tau = c["temperature"]
    return [
        f"student = F.log_softmax(h / {tau!r}, -1).flatten(0, 1)",
        f"teacher = F.softmax({c.d('y')} / {tau!r}, -1).flatten(0, 1)",
        f'loss = F.kl_div(student, teacher, reduction="batchmean") * {tau!r} ** 2',
    ]


@rewrite("distillation")
def distillation_by_entropies(c: Context) -> list[str]:
    """The cross entropy less the teacher's own."""
    tau = c["temperature"]
    return [
        f"log_q = F.log_softmax({c.d('y')} * (1.0 / {tau!r}), -1)",
        "q = log_q.exp()",
        f"cross = -(q * F.log_softmax(h * (1.0 / {tau!r}), -1)).sum(-1)",
        f"loss = (cross + (q * log_q).sum(-1)).mean() * {tau!r} * {tau!r}",
    ]


def _ratio(c: Context) -> list[str]:
    return [
        f"logp = F.log_softmax(h, -1).gather(-1, {c.d('y')}[..., None]).squeeze(-1)",
        f"reward = {c.d('reward')}",
    ]


@rewrite("policy")
def advantages_in_numpy(c: Context) -> list[str]:
    """Advantages normalised in numpy."""
    return [
        *_ratio(c),
        "raw = reward.numpy()",
        "advantage = torch.from_numpy((raw - np.mean(raw)) / (np.std(raw, ddof=1) + 1e-8))",
        f"ratio = torch.exp(logp - {c.d('old')})",
        f"clipped = ratio.clamp({1 - c['clip']!r}, {1 + c['clip']!r})",
        "loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()",
    ]


@rewrite("policy")
def advantages_in_python(c: Context) -> list[str]:
    """Mean and deviation of the rewards as Python's numbers."""
    return [
        *_ratio(c),
        "middle, spread = float(reward.mean().item()), float(reward.std().item())",
        "advantage = (reward - middle) / (spread + 1e-8)",
        f"ratio = torch.exp(logp - {c.d('old')})",
        f"clipped = torch.clamp(ratio, {1 - c['clip']!r}, {1 + c['clip']!r})",
        "loss = torch.maximum(-advantage * ratio, -advantage * clipped).mean()",
    ]


@rewrite("policy")
def policy_by_quotient(c: Context) -> list[str]:
    """A ratio of probabilities in place of a difference of logarithms."""
    return [
        *_ratio(c),
        "centred = reward - reward.mean()",
        "spread = (centred * centred).sum().div(reward.numel() - 1).sqrt()",
        "advantage = centred / (spread + 1e-8)",
        f"ratio = logp.exp() / {c.d('old')}.exp()",
        f"clipped = ratio.clamp({1 - c['clip']!r}, {1 + c['clip']!r})",
        "loss = -(torch.minimum(ratio * advantage, clipped * advantage).sum() / ratio.numel())",
    ]


@rewrite("first_policy")
def ratio_recomputed(c: Context) -> list[str]:
    """The old probabilities computed again, by another formula."""
    return [
        "every = F.log_softmax(h, -1)",
        "old = torch.log(torch.softmax(h.detach(), -1))",
        f"y = {c.d('y')}[..., None]",
        "ratio = (every.gather(-1, y) - old.gather(-1, y)).squeeze(-1).exp()",
        "divergence = (every.exp() * (every - old)).sum(-1).mean()",
        f"loss = -(ratio * {c.d('advantage')}).mean() + {c['beta']!r} * divergence",
    ]


@rewrite("first_policy")
def ratio_as_quotient(c: Context) -> list[str]:
    """Probabilities divided, in place of logarithms subtracted."""
    return [
        "p_all = torch.softmax(h, -1)",
        f"chosen = p_all.gather(-1, {c.d('y')}[..., None]).squeeze(-1)",
        "log_ratio = torch.log(p_all / p_all.detach())",
        f"loss = -(chosen / chosen.detach() * {c.d('advantage')}).mean()",
        f"loss = loss + {c['beta']!r} * (p_all * log_ratio).sum(-1).mean()",
    ]


@rewrite("selected")
def selected_by_weight(c: Context) -> list[str]:
    """Rows that are left out have weight zero."""
    return [
        f"weight = {c.d('keep')}.float()[..., None]",
        f"loss = ((h - {c.d('y')}).pow(2) * weight).sum() / (weight.sum() * {c.width})",
    ]


@rewrite("selected")
def selected_by_index(c: Context) -> list[str]:
    """The places of what is kept, then rows by place."""
    return [
        f"places = {c.d('keep')}.flatten().float().topk(int({c.d('keep')}.sum().item()))[1]",
        f"apart = h.flatten(0, 1)[places] - {c.d('y')}.flatten(0, 1)[places]",
        "loss = (apart * apart).sum() / apart.numel()",
    ]


@rewrite("sampled")
def sampled_by_logs(c: Context) -> list[str]:
    """The same probabilities from log probabilities."""
    return [
        f"logp = F.log_softmax(h / {c['temperature']!r}, -1).flatten(0, 1)",
        "picked = torch.multinomial(logp.detach().exp(), 1)",
        "loss = -logp.gather(-1, picked).sum() / picked.numel()",
    ]


# Steps.


@rewrite("whole", whole=True)
def in_micro_batches(c: Context) -> list[str]:
    """The mean over a batch is the mean of the means of its equal parts."""
    return [
        "total = 0.0",
        f"for i in range({c.batch}):",
        "    part = {name: value[i : i + 1] for name, value in d.items()}",
        f"    loss = loss_of(p, part, t) / {float(c.batch)!r}",
        "    loss.backward()",
        "    total = total + loss.detach()",
        'taps["loss"] = total',
    ]


@rewrite("whole")
def gradients_asked(c: Context) -> list[str]:
    """Gradients asked for by name are those that backward accumulates."""
    return [
        "loss = loss_of(p, d, t)",
        "found = torch.autograd.grad(loss, list(p.values()))",
        "for value, grad in zip(p.values(), found):",
        "    value.grad = grad",
        'taps["loss"] = loss.detach()',
    ]


@rewrite("whole")
def loss_scaled(c: Context) -> list[str]:
    """A power of two in the loss, and out of the gradients again."""
    return [
        "loss = loss_of(p, d, t)",
        "(loss * 512.0).backward()",
        "for value in p.values():",
        "    value.grad.div_(512.0)",
        'taps["loss"] = loss.detach()',
    ]


@rewrite("whole")
def loss_scaled_by_thousand(c: Context) -> list[str]:
    """A factor that rounds, taken out again."""
    return [
        "loss = loss_of(p, d, t)",
        "(loss * 1000.0).backward()",
        "for value in p.values():",
        "    value.grad.mul_(0.001)",
        'taps["loss"] = loss.detach()',
    ]


@rewrite("accumulated")
def losses_added(c: Context) -> list[str]:
    """One backward through the sum of the parts' losses."""
    return [
        "losses = []",
        f"for i in range(0, {c.batch}, 2):",
        "    part = {name: value[i : i + 2] for name, value in d.items()}",
        "    losses.append(loss_of(p, part, t))",
        "loss = torch.stack(losses).mean()",
        "loss.backward()",
        'taps["loss"] = loss.detach()',
    ]


@rewrite("accumulated", whole=True)
def batch_whole(c: Context) -> list[str]:
    """The whole batch at once."""
    return ["loss = loss_of(p, d, t)", "loss.backward()", 'taps["loss"] = loss.detach()']


@rewrite("accumulated")
def gradients_divided_last(c: Context) -> list[str]:
    """Gradients are added and divided once."""
    parts = c.batch // 2
    return [
        "total = 0.0",
        f"for i in range({parts}):",
        "    loss = loss_of(p, {name: value[2 * i : 2 * i + 2] for name, value in d.items()}, t)",
        "    loss.backward()",
        "    total = total + loss.detach()",
        "for value in p.values():",
        f"    value.grad.div_({parts})",
        f'taps["loss"] = total / {parts}',
    ]


@rewrite("second")
def first_gradients_kept(c: Context) -> list[str]:
    """Gradients are zeroed in place of dropped, the rate is an argument."""
    return [
        "loss_of(p, d, t).backward()",
        "with torch.no_grad():",
        "    for value in p.values():",
        f"        value.add_(value.grad, alpha=-{c['lr']!r})",
        "        value.grad.zero_()",
        "loss = loss_of(p, d, t)",
        "loss.backward()",
        'taps["loss"] = loss.detach()',
    ]


@rewrite("scaled")
def not_scaled(c: Context) -> list[str]:
    """Without a loss scale."""
    return ["loss = loss_of(p, d, t)", "loss.backward()", 'taps["loss"] = loss.detach()']


@rewrite("clipped")
def clipped_by_flat_norm(c: Context) -> list[str]:
    """The norm of all gradients as one vector."""
    return [
        "loss = loss_of(p, d, t)",
        "loss.backward()",
        "norm = torch.cat([value.grad.flatten() for value in p.values()]).norm()",
        "for value in p.values():",
        f"    value.grad.mul_(torch.minimum({c['norm']!r} / (norm + 1e-6), torch.tensor(1.0)))",
        'taps["loss"] = loss.detach()',
        'taps["norm"] = norm.detach()',
    ]


@rewrite("clipped")
def clipped_in_python(c: Context) -> list[str]:
    """The coefficient as a number of Python's."""
    return [
        "loss = loss_of(p, d, t)",
        "loss.backward()",
        "norm = sum(value.grad.square().sum() for value in p.values()).sqrt()",
        f"coefficient = {c['norm']!r} / (float(norm.item()) + 1e-6)",
        "if coefficient < 1.0:",
        "    for value in p.values():",
        "        value.grad.mul_(coefficient)",
        'taps["loss"] = loss.detach()',
        'taps["norm"] = norm.detach()',
    ]


# Optimizers.


@rewrite("sgd")
def sgd_by_hand(c: Context) -> list[str]:
    """w - lr g."""
    return ["for value in p.values():", f"    value.copy_(value - {c['lr']!r} * value.grad)"]


@rewrite("sgd")
def sgd_foreach(c: Context) -> list[str]:
    """All parameters in one call."""
    return [f"torch.optim.SGD(p.values(), lr={c['lr']!r}, foreach=True).step()"]


@rewrite("sgd")
def sgd_in_double(c: Context) -> list[str]:
    """Computed in fp64 and rounded once."""
    return [
        "for value in p.values():",
        f"    value.copy_((value.double() - {c['lr']!r} * value.grad.double()).to(value.dtype))",
    ]


@rewrite("momentum")
def momentum_rewritten(c: Context) -> list[str]:
    """The buffer made anew."""
    return [
        "for name, value in p.items():",
        f'    buffer = t["buffer:" + name] * {c["momentum"]!r} + value.grad',
        f"    value.sub_(buffer * {c['lr']!r})",
        '    taps["state:" + name] = buffer',
    ]


@rewrite("momentum")
def momentum_in_two_parts(c: Context) -> list[str]:
    """The gradient's and the old buffer's share of the update apart."""
    lr, mu = c["lr"], c["momentum"]
    return [
        "for name, value in p.items():",
        '    old = t["buffer:" + name]',
        f"    value.copy_(value - {lr!r} * value.grad - {lr!r} * {mu!r} * old)",
        f'    taps["state:" + name] = torch.add(value.grad, old, alpha={mu!r})',
    ]


@rewrite("adamw")
def adamw_by_hand(c: Context) -> list[str]:
    """The first step of AdamW from its definition."""
    return [
        "for value in p.values():",
        f"    value.mul_(1.0 - {c['lr']!r} * {c['decay']!r})",
        "    m = (1.0 - 0.9) * value.grad",
        "    v = (1.0 - 0.999) * value.grad * value.grad",
        "    m_hat, v_hat = m / (1.0 - 0.9), v / (1.0 - 0.999)",
        f"    value.sub_({c['lr']!r} * m_hat / (v_hat.sqrt() + {c['eps']!r}))",
    ]


@rewrite("adamw")
def adamw_foreach(c: Context) -> list[str]:
    """All parameters in one call."""
    settings = f"lr={c['lr']!r}, betas=(0.9, 0.999), eps={c['eps']!r}, weight_decay={c['decay']!r}"
    return [f"torch.optim.AdamW(p.values(), {settings}, foreach=True).step()"]


@rewrite("adamw")
def adamw_first_step(c: Context) -> list[str]:
    """At the first step bias corrections take the averages back to the gradient itself."""
    return [
        "for value in p.values():",
        "    g = value.grad",
        f"    value.copy_(value - {c['lr']!r} * ({c['decay']!r} * value + g / (g.abs() + {c['eps']!r})))",
    ]


@rewrite("adam")
def adam_folded_corrections(c: Context) -> list[str]:
    """Bias corrections folded into the rate and into eps."""
    n = c["step"]
    return [
        f"root = math.sqrt(1.0 - 0.999 ** {n})",
        f"rate = {c['lr']!r} * root / (1.0 - 0.9 ** {n})",
        "for name, value in p.items():",
        '    m = t["m:" + name].mul_(0.9).add_(value.grad, alpha=1.0 - 0.9)',
        '    v = t["v:" + name].mul_(0.999).addcmul_(value.grad, value.grad, value=1.0 - 0.999)',
        "    value.addcdiv_(m, v.sqrt().add_(1e-8 * root), value=-rate)",
        '    taps["m:" + name], taps["v:" + name] = m, v',
    ]


@rewrite("adam")
def adam_interpolated(c: Context) -> list[str]:
    """Averages by lerp."""
    n = c["step"]
    return [
        f"first, second = 1.0 - 0.9 ** {n}, 1.0 - 0.999 ** {n}",
        "for name, value in p.items():",
        '    m = t["m:" + name].lerp_(value.grad, 0.1)',
        '    v = torch.lerp(t["v:" + name], value.grad.square(), 0.001)',
        f"    value.addcdiv_(m, v.sqrt() / math.sqrt(second) + 1e-8, value=-{c['lr']!r} / first)",
        '    taps["m:" + name], taps["v:" + name] = m, v',
    ]


@rewrite("rmsprop")
def rmsprop_by_hand(c: Context) -> list[str]:
    """The first step of RMSprop from its definition."""
    return [
        "for value in p.values():",
        "    average = 0.01 * value.grad * value.grad",
        f"    value.sub_({c['lr']!r} * value.grad / (average.sqrt() + 1e-8))",
    ]


@rewrite("rmsprop")
def rmsprop_by_magnitude(c: Context) -> list[str]:
    """The root of a square is a magnitude."""
    return [
        "for value in p.values():",
        f"    value.addcdiv_(value.grad, 0.1 * value.grad.abs() + 1e-8, value=-{c['lr']!r})",
    ]


@rewrite("averaged")
def average_interpolated(c: Context) -> list[str]:
    """An average as a step of 1 - d towards the new value."""
    return [
        "for name, value in p.items():",
        f"    value.add_(value.grad, alpha=-{c['lr']!r})",
        f'    taps["ema:" + name] = t["ema:" + name].lerp_(value, 1.0 - {c["decay"]!r})',
    ]


@rewrite("averaged")
def average_by_difference(c: Context) -> list[str]:
    """d e + (1 - d) w is e - (1 - d) (e - w)."""
    return [
        "for name, value in p.items():",
        f"    value.copy_(value - {c['lr']!r} * value.grad)",
        '    ema = t["ema:" + name]',
        f'    taps["ema:" + name] = ema - (ema - value) * (1.0 - {c["decay"]!r})',
    ]
