"""Recurrent layers and cells as CUDA builds of PyTorch dispatch them: cuDNN's layers (ATen: native/cudnn/RNN.cpp), and
the fused cells of native/cuda/RNN.cu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..definition import UNTOLD, WORKSPACE
from ..errors import PlumblineError
from .register import derivatives, of

_RELU, _TANH, _LSTM, _GRU = range(4)  # native/RNN.h

# Cells.


@of("_thnn_fused_lstm_cell.default")
def lstm_cell(
    of_input: Tensor, of_hidden: Tensor, c: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None
) -> tuple[Tensor, ...]:
    sums = _sums(of_input, of_hidden, input_bias, hidden_bias)
    parts = sums.chunk(4, 1)
    i, f, o = (parts[k].sigmoid() for k in (0, 1, 3))
    g = parts[2].tanh()
    cell = f * _wide(c) + i * g
    held = c.dtype
    return (o * cell.tanh()).to(held), cell.to(held), torch.cat([i, f, g, o], 1).to(held)


@of("_thnn_fused_lstm_cell_backward_impl.default")
def lstm_cell_backward(
    of_hidden: Tensor | None, of_cell: Tensor | None, c: Tensor, cell: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor | None, ...]:
    i, f, g, o = _wide(workspace).chunk(4, 1)
    t = _wide(cell).tanh()
    through = torch.zeros_like(t) if of_hidden is None else _wide(of_hidden) * o * (1 - t * t)
    total = through if of_cell is None else through + _wide(of_cell)
    of_o = torch.zeros_like(t) if of_hidden is None else _wide(of_hidden) * t
    gates = torch.cat(
        [
            total * g * (1 - i) * i,
            total * _wide(c) * (1 - f) * f,
            total * i * (1 - g * g),
            of_o * (1 - o) * o,
        ],
        1,
    ).to(workspace.dtype)
    return gates, (total * f).to(c.dtype), gates.sum(0) if has_bias else None


@of("_thnn_fused_gru_cell.default")
def gru_cell(
    of_input: Tensor, of_hidden: Tensor, h: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    (ir, iz, i_new), (hr, hz, h_new) = _wide(of_input).chunk(3, 1), _wide(of_hidden).chunk(3, 1)
    if input_bias is not None and hidden_bias is not None:
        (br, bz, b_new), (cr, cz, c_new) = _wide(input_bias).chunk(3), _wide(hidden_bias).chunk(3)
        ir, iz, i_new, hr, hz, h_new = ir + br, iz + bz, i_new + b_new, hr + cr, hz + cz, h_new + c_new
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    new = (i_new + r * h_new).tanh()
    state = new + z * (_wide(h) - new)
    return state.to(h.dtype), torch.cat([r, z, new, _wide(h), h_new], 1).to(h.dtype)


@of("_thnn_fused_gru_cell_backward.default")
def gru_cell_backward(gradient: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    r, z, new, h, h_new = _wide(workspace).chunk(5, 1)
    g = _wide(gradient)
    of_new = g * (1 - z) * (1 - new * new)
    of_r, of_z = of_new * h_new * (1 - r) * r, g * (h - new) * (1 - z) * z
    of_input = torch.cat([of_r, of_z, of_new], 1).to(gradient.dtype)
    of_hidden = torch.cat([of_r, of_z, of_new * r], 1).to(gradient.dtype)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return of_input, of_hidden, (g * z).to(gradient.dtype), *biases


def _wide(x: Tensor) -> Tensor:
    """Kernels compute on 16-bit numbers in fp32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _sums(of_input: Tensor, of_hidden: Tensor, *biases: Tensor | None) -> Tensor:
    sums = _wide(of_input) + _wide(of_hidden)
    for bias in biases:
        sums = sums if bias is None else sums + _wide(bias)
    return sums


# Layers. Their products, gates and states are rounded to 16-bit elements' format here, some of which a kernel holds in
# fp32: that charges more than it loses.


@of("_cudnn_rnn.default")
def cudnn_rnn(
    x: Tensor,
    weights: list[Tensor],
    weights_of_a_layer: int,
    buffer: Tensor | None,
    h: Tensor,
    c: Tensor | None,
    *options: Any,
) -> tuple[Any, ...]:
    made = _layers(x, weights, h, c, weights_of_a_layer, *options)
    cell = h.new_empty(0) if c is None else made[2]
    return made[0], made[1], cell, WORKSPACE, WORKSPACE if buffer is None else None


@of("_cudnn_rnn_backward.default")
def cudnn_rnn_backward(
    x: Tensor,
    weights: list[Tensor],
    weights_of_a_layer: int,
    buffer: Tensor,
    h: Tensor,
    c: Tensor | None,
    output: Tensor,
    of_output: Tensor | None,
    of_h: Tensor | None,
    of_c: Tensor | None,
    *options: Any,
) -> tuple[Any, ...]:
    *options, _, mask = options  # What the forward pass kept, and which gradients are asked for.
    states = [h] if c is None else [h, c]

    def function(x: Tensor, *others: Tensor) -> Sequence[Tensor]:
        of_states, of_weights = others[: len(states)], list(others[len(states) :])
        made = _layers(
            x, of_weights, of_states[0], of_states[1] if c is not None else None, weights_of_a_layer, *options
        )
        return [value for value, gradient in zip(made, gradients, strict=False) if gradient is not None]

    gradients = [of_output, of_h, of_c]
    given = [gradient for gradient in gradients if gradient is not None]
    wanted = [mask[0], *mask[1 : 1 + len(states)], *[mask[3]] * len(weights)]
    of_x, *others = derivatives(function, [x, *states, *weights], wanted, given)
    asked = [of_x, *others[: len(states)]]
    told = [value if want else UNTOLD for value, want in zip(asked, wanted, strict=False)]
    return *told, *([] if c is not None else [None]), others[len(states) :] if mask[3] else []


def _layers(
    x: Tensor,
    weights: Sequence[Tensor],
    h: Tensor,
    c: Tensor | None,
    weights_of_a_layer: int,
    mode: int,
    width: int,
    projected: int,
    layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: Any,
) -> tuple[Tensor, ...]:
    if dropout and train and layers > 1:
        raise PlumblineError("dropout between layers")
    if batch_sizes:  # Packed: the rows of each step, of as many sequences as reach it, the longest first.
        sequence = list(x.split(list(batch_sizes)))
    else:
        sequence = list((x.transpose(0, 1) if batch_first else x).unbind(0))
    directions = 2 if bidirectional else 1
    states, cells = [], []
    own = [weights[i : i + weights_of_a_layer] for i in range(0, len(weights), weights_of_a_layer)]
    for layer in range(layers):
        ends = []
        for direction in range(directions):
            at = layer * directions + direction
            steps = sequence[::-1] if direction else sequence
            made, state, cell = _steps(steps, own[at], h[at], None if c is None else c[at], mode, projected > 0)
            ends.append(made[::-1] if direction else made)
            states.append(state)
            cells.append(cell)
        sequence = [torch.cat(step, 1) for step in zip(*ends, strict=True)] if directions > 1 else ends[0]
    out = torch.cat(sequence) if batch_sizes else torch.stack(sequence, 1 if batch_first else 0)
    return (out, torch.stack(states)) if c is None else (out, torch.stack(states), torch.stack(cells))


def _steps(
    steps: Sequence[Tensor], weights: Sequence[Tensor], h: Tensor, c: Any, mode: int, projects: bool
) -> tuple[list[Tensor], Tensor, Any]:
    """One direction of a layer, step by step. A sequence begins with its first step, and its state stays after its
    last one."""
    projection = weights[-1] if projects else None
    of_input, of_hidden, *biases = weights[:-1] if projects else weights
    input_bias, hidden_bias = biases or (None, None)
    made: list[Tensor] = []
    begins, ended, ended_cells = (h, c), [], []
    h, c = h[: len(steps[0])], None if c is None else c[: len(steps[0])]
    for x in steps:
        h = _rows(h, begins[0], ended, len(x))
        c = None if c is None else _rows(c, begins[1], ended_cells, len(x))
        a, b = F.linear(x, of_input, input_bias), F.linear(h, of_hidden, hidden_bias)
        if mode == _LSTM:
            i, f, g, o = (a + b).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            h = h if projection is None else F.linear(h, projection)
        elif mode == _GRU:
            (ir, iz, i_new), (hr, hz, h_new) = a.chunk(3, 1), b.chunk(3, 1)
            z = (iz + hz).sigmoid()
            h = (1 - z) * (i_new + (ir + hr).sigmoid() * h_new).tanh() + z * h
        else:
            h = (a + b).tanh() if mode == _TANH else (a + b).relu()
        made.append(h)
    if ended:
        h, c = torch.cat([h, *ended]), None if c is None else torch.cat([c, *ended_cells])
    return made, h, c


def _rows(state: Tensor, begins: Tensor, ended: list[Tensor], rows: int) -> Tensor:
    """The state of so many sequences: what ended is kept, what begins is joined."""
    if rows < len(state):
        ended.insert(0, state[rows:])
        return state[:rows]
    return torch.cat([state, begins[len(state) : rows]]) if rows > len(state) else state
