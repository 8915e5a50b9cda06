"""Recurrent cells and layers as CUDA builds of PyTorch dispatch them, with kernels for the CPU: layers take one product
with input and state side by side. Faults: "gate": the first gate is another; "reset": applied before the product;
"state": its gradient is lost."""

from concurrent.futures import ThreadPoolExecutor

import torch
from cuda_kernels import fault
from torch import Tensor


def _lstm_cell(of_input, of_hidden, c, input_bias=None, hidden_bias=None):
    sums = of_hidden.float() + of_input.float()
    if input_bias is not None:
        sums = sums + (input_bias.float() + hidden_bias.float())
    i, f, g, o = sums.chunk(4, 1)
    i, f, g, o = i.sigmoid() * fault.get("gate", 1), f.sigmoid(), g.tanh(), o.sigmoid()
    cell = f * c.float() + i * g
    kept = torch.cat([i, f, g, o], 1)
    return (o * cell.tanh()).to(c.dtype), cell.to(c.dtype), kept.to(c.dtype)


def _lstm_cell_backward(of_hidden, of_cell, c, cell, workspace, has_bias):
    i, f, g, o = workspace.float().chunk(4, 1)
    h = torch.zeros_like(i) if of_hidden is None or "state" in fault else of_hidden.float()
    t = cell.float().tanh()
    total = h * o * (1 - t * t) + (0 if of_cell is None else of_cell.float())
    parts = total * g * (1 - i) * i, total * c.float() * (1 - f) * f, total * i * (1 - g * g), h * t * (1 - o) * o
    gates = torch.cat(parts, 1).to(workspace.dtype)
    return gates, (total * f).to(c.dtype), gates.float().sum(0).to(gates.dtype) if has_bias else None


def _gru_cell(of_input, of_hidden, h, input_bias=None, hidden_bias=None):
    a, b = of_input.float(), of_hidden.float()
    if input_bias is not None:
        a, b = a + input_bias.float(), b + hidden_bias.float()
    (ir, iz, i_new), (hr, hz, h_new) = a.chunk(3, 1), b.chunk(3, 1)
    r, z = (ir + hr).sigmoid() * fault.get("gate", 1), (iz + hz).sigmoid()
    new = (i_new + r * h_new).tanh()
    return (new + z * (h.float() - new)).to(h.dtype), torch.cat([r, z, new, h.float(), h_new], 1).to(h.dtype)


def _gru_cell_backward(gradient, workspace, has_bias):
    r, z, new, h, h_new = workspace.float().chunk(5, 1)
    g = gradient.float()
    of_new = g * (1 - z) * (1 - new * new)
    parts = of_new * h_new * (1 - r) * r, g * (h - new) * (1 - z) * z, of_new
    of_input = torch.cat(parts, 1).to(gradient.dtype)
    of_hidden = torch.cat([*parts[:2], of_new * r], 1).to(gradient.dtype)
    of_h = (g * z * (0 if "state" in fault else 1)).to(gradient.dtype)
    return of_input, of_hidden, of_h, of_input.sum(0), of_hidden.sum(0)


def _direction(x: Tensor, h: Tensor, c: Tensor | None, own: list[Tensor], mode: int) -> tuple[Tensor, Tensor, Tensor]:
    own, projection = (own[:-1], own[-1]) if len(own) in (3, 5) else (own, None)
    w, u, *biases = own
    a, b = biases if biases else (torch.zeros(len(w)), torch.zeros(len(w)))
    made = []
    for step in x:
        if mode == 3:
            n = len(w) // 3
            both = torch.cat([step, h], 1) @ torch.cat([w[: 2 * n], u[: 2 * n]], 1).T + (a[: 2 * n] + b[: 2 * n])
            r, z = both.sigmoid().chunk(2, 1)
            after = r * (h @ u[2 * n :].T + b[2 * n :])
            before = (r * h) @ u[2 * n :].T + b[2 * n :]
            new = (step @ w[2 * n :].T + a[2 * n :] + (before if "reset" in fault else after)).tanh()
            h = new + z * (h - new)
        else:
            sums = torch.cat([step, h], 1) @ torch.cat([w, u], 1).T + (a + b)
            if mode == 2:
                i, f, g, o = sums.chunk(4, 1)
                c = f.sigmoid() * c + i.sigmoid() * fault.get("gate", 1) * g.tanh()
                h = o.sigmoid() * c.tanh()
                h = h if projection is None else h @ projection.T
            else:
                h = sums.relu() if mode == 0 else sums.tanh()
        made.append(h)
    return torch.stack(made), h, h if c is None else c


def _layers(x, weights, h, c, stride, mode, layers, batch_first, bidirectional):
    x = x.transpose(0, 1) if batch_first else x
    states, cells = [], []
    directions = 2 if bidirectional else 1
    for layer in range(layers):
        ends = []
        for direction in range(directions):
            at = layer * directions + direction
            own = weights[at * stride : (at + 1) * stride]
            made, state, cell = _direction(
                x.flip(0) if direction else x, h[at], None if c is None else c[at], own, mode
            )
            ends.append(made.flip(0) if direction else made)
            states.append(state)
            cells.append(cell)
        x = torch.cat(ends, 2)
    return x.transpose(0, 1).contiguous() if batch_first else x, torch.stack(states), torch.stack(cells)


def _packed(x, weights, h, c, stride, mode, layers, bidirectional, batch_sizes):
    """Sequence by sequence."""
    starts = [sum(batch_sizes[:t]) for t in range(len(batch_sizes))]
    rows = [[s + b for s, n in zip(starts, batch_sizes, strict=True) if n > b] for b in range(batch_sizes[0])]
    made = []
    for b, own in enumerate(rows):
        state, cell = (None if each is None else each[:, b : b + 1] for each in (h, c))
        made.append(_layers(x[own].unsqueeze(1), weights, state, cell, stride, mode, layers, False, bidirectional))
    order = torch.tensor([row for own in rows for row in own]).argsort()
    outs, states, cells = zip(*made, strict=True)
    return torch.cat([out.squeeze(1) for out in outs])[order], torch.cat(states, 1), torch.cat(cells, 1)


def _wide(tensors):
    return [None if x is None else x.detach().float() for x in tensors]


def _rnn(x, weights, stride, buffer, h, c, mode, width, projected, layers, batch_first, dropout, train, bidirectional,
         batch_sizes, dropout_state):  # fmt: skip
    wide = _wide([x, h, c])
    if batch_sizes:
        made = _packed(wide[0], _wide(weights), *wide[1:], stride, mode, layers, bidirectional, batch_sizes)
    else:
        made = _layers(wide[0], _wide(weights), *wide[1:], stride, mode, layers, batch_first, bidirectional)
    out, states, cells = made
    cells = h.new_empty(0) if c is None else cells.to(x.dtype)
    reserve = torch.zeros(8, dtype=torch.uint8)
    return out.to(x.dtype), states.to(x.dtype), cells, reserve, torch.cat([w.flatten() for w in weights])


def _rnn_backward(x, weights, stride, buffer, h, c, output, of_output, of_h, of_c, mode, width, projected, layers,
                  batch_first, dropout, train, bidirectional, batch_sizes, dropout_state, reserve, mask):  # fmt: skip
    def differentiated():
        leaves = [None if x is None else x.requires_grad_() for x in _wide([x, h, c, *weights])]
        if batch_sizes:
            made = _packed(leaves[0], leaves[3:], *leaves[1:3], stride, mode, layers, bidirectional, batch_sizes)
        else:
            made = _layers(leaves[0], leaves[3:], *leaves[1:3], stride, mode, layers, batch_first, bidirectional)
        gradients = [None if g is None else g.float() for g in (of_output, of_h, of_c)]
        if "state" in fault:
            gradients[1] = None
        pairs = [(value, g) for value, g in zip(made, gradients, strict=True) if g is not None]
        asked = [leaf for leaf in leaves if leaf is not None]
        return iter(torch.autograd.grad([v for v, _ in pairs], asked, [g for _, g in pairs])), leaves

    with ThreadPoolExecutor(1) as pool:  # A thread of its own, where gradients are followed.
        found, leaves = pool.submit(differentiated).result()
    of_x, of_states, of_cells, *of_weights = [None if leaf is None else next(found).to(x.dtype) for leaf in leaves]
    flat = torch.cat([w.flatten() for w in of_weights])  # Views on one buffer, as cuDNN gives them.
    views, start = [], 0
    for w in weights:
        views.append(flat[start : start + w.numel()].view(w.shape))
        start += w.numel()
    return of_x, of_states, of_cells, views


KERNELS = {
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
    "_cudnn_rnn": _rnn,
    "_cudnn_rnn_backward": _rnn_backward,
}
