"""Recurrent networks, alignment, and tables of categories."""

import torch
import torch.nn.functional as F
from torch import nn

from .generative import mlp
from .training import Cast, Training, program, trained


@program(bf16=False)
def long_short_term_memory(cast: Cast) -> Training:
    words, network, head = nn.Embedding(20, 8), nn.LSTM(8, 16, 2, batch_first=True, dropout=0.1), nn.Linear(16, 20)
    model = nn.ModuleList([words, network, head])

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 20, (3, 9))
        return F.cross_entropy(head(network(words(tokens[:, :-1]))[0]).flatten(0, 1), tokens[:, 1:].flatten())

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def packed_rows(cast: Cast) -> Training:
    network, head = nn.GRU(4, 8, batch_first=True, bidirectional=True), nn.Linear(16, 3)
    model = nn.ModuleList([network, head])

    def loss() -> torch.Tensor:
        lengths = torch.tensor([6, 4, 3])
        packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 6, 4), lengths, batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(network(packed)[0], batch_first=True)
        mean = out.sum(1) / lengths[:, None]
        return F.cross_entropy(head(mean), torch.tensor([0, 2, 1]))

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def speech(cast: Cast) -> Training:
    """Letters aligned with frames by CTC."""
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))

    def loss() -> torch.Tensor:
        out = model(torch.randn(10, 3, 6)).log_softmax(-1)
        return F.ctc_loss(out, torch.randint(1, 5, (3, 4)), torch.full((3,), 10), torch.tensor([4, 3, 2]))

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program()
def translation(cast: Cast) -> Training:
    words, model, head = nn.Embedding(20, 16), nn.Transformer(16, 2, 1, 1, 32, 0.1, batch_first=True), nn.Linear(16, 20)
    every = nn.ModuleList([words, model, head])
    optimizer = torch.optim.Adam(every.parameters(), 1e-3, betas=(0.9, 0.98))

    def loss() -> torch.Tensor:
        source, goal = torch.randint(1, 20, (3, 7)), torch.randint(1, 20, (3, 6))
        source[0, 5:] = 0
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        out = model(
            words(source), words(goal[:, :-1]), tgt_mask=mask, src_key_padding_mask=source == 0, tgt_is_causal=True
        )
        return F.cross_entropy(head(out).flatten(0, 1).float(), goal[:, 1:].flatten(), ignore_index=0)

    return trained(every, optimizer, loss, cast)


@program()
def recommendation(cast: Cast) -> Training:
    """Bags of categories beside numbers, and their products."""
    bags = nn.ModuleList(nn.EmbeddingBag(12, 8, mode="sum") for _ in range(3))
    bottom, top = mlp(4, 16, 8), mlp(14, 16, 1)
    model = nn.ModuleList([bags, bottom, top])

    def loss() -> torch.Tensor:
        numbers = bottom(torch.randn(6, 4))
        codes = [bag(torch.randint(0, 12, (10,)), torch.tensor([0, 2, 3, 5, 7, 8])) for bag in bags]
        all_codes = torch.stack([numbers.float(), *codes], 1)
        products = torch.bmm(all_codes, all_codes.transpose(1, 2))
        rows, columns = torch.tril_indices(4, 4, -1)
        out = top(torch.cat([numbers, products[:, rows, columns].to(numbers.dtype)], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(out.float(), (torch.rand(6) < 0.5).float())

    return trained(model, torch.optim.Adagrad(model.parameters(), 1e-2), loss, cast)


@program(bf16=False)
def matrix_factorisation(cast: Cast) -> Training:
    users, items = nn.Embedding(10, 4, sparse=True), nn.Embedding(12, 4, sparse=True)
    model = nn.ModuleList([users, items])

    def loss() -> torch.Tensor:
        user, item = torch.randint(0, 10, (8,)), torch.randint(0, 12, (8,))
        return F.mse_loss((users(user) * items(item)).sum(1), torch.randn(8))

    return trained(model, torch.optim.SparseAdam(list(model.parameters()), 1e-2), loss, cast)


@program(bf16=False)
def temporal_convolutions(cast: Cast) -> Training:
    model = nn.Sequential(
        nn.Conv1d(3, 8, 3, padding=2, dilation=2), nn.ReLU(), nn.Conv1d(8, 8, 3, padding=4, dilation=4), nn.ReLU(),
        nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 1),
    )  # fmt: skip
    model[0] = nn.utils.parametrizations.weight_norm(model[0])
    return trained(
        model,
        torch.optim.RMSprop(model.parameters(), 1e-3, momentum=0.9, centered=True),
        lambda: F.huber_loss(model(torch.randn(4, 3, 16)).squeeze(1), torch.randn(4)),
        cast,
    )


@program(bf16=False)
def quantiles(cast: Cast) -> Training:
    model, levels = mlp(5, 16, 3), torch.tensor([0.1, 0.5, 0.9])

    def loss() -> torch.Tensor:
        apart = torch.randn(16, 1) - model(torch.randn(16, 5))
        return torch.maximum(levels * apart, (levels - 1) * apart).mean()

    return trained(model, torch.optim.NAdam(model.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def selective_scan(cast: Cast) -> Training:
    """A state space model whose steps depend on what it reads."""
    project, decay, head = nn.Linear(4, 13), nn.Parameter(torch.rand(4, 4).log()), nn.Linear(4, 4)
    model = nn.ModuleList([project, head])
    model.register_parameter("decay", decay)

    def loss() -> torch.Tensor:
        x = torch.randn(2, 8, 4)
        step, into, out, _ = project(x).split([4, 4, 4, 1], -1)
        step = F.softplus(step)
        state, made = torch.zeros(2, 4, 4), []
        for t in range(8):
            keep = torch.exp(-step[:, t, :, None] * decay.exp())
            state = keep * state + (step[:, t] * x[:, t])[..., None] * into[:, t, None]
            made.append((state * out[:, t, None]).sum(-1))
        return F.mse_loss(head(torch.stack(made, 1)), x.roll(-1, 1))

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)
