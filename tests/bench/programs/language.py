"""Language models: by hand, and transformers' own from small configurations."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from .training import Cast, Training, program, trained

WORDS, LENGTH, WIDTH = 37, 12, 16


def text(rows: int = 2, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(0, WORDS, (rows, length))


class Block(nn.Module):
    def __init__(self, norm: type[nn.Module] = nn.LayerNorm, gated: bool = False, heads: int = 2) -> None:
        super().__init__()
        self.first, self.second, self.heads, self.gated = norm(WIDTH), norm(WIDTH), heads, gated
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH if gated else 4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        q, k, v = (t.view(rows, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(attended)
        hidden = self.up(self.second(x))
        if self.gated:
            gate, hidden = hidden.chunk(2, -1)
            hidden = F.silu(gate) * hidden
        else:
            hidden = F.gelu(hidden)
        return x + self.down(hidden)


class Decoder(nn.Module):
    def __init__(self, layers: int = 2, tied: bool = True, **block: object) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(**block) for _ in range(layers))  # type: ignore[arg-type]
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def next_word_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())


@program()
def gpt(cast: Cast) -> Training:
    model = Decoder()
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], 1e-3
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    return trained(model, optimizer, lambda: next_word_loss(model, text()), cast, schedule.step)


@program()
def llama_like(cast: Cast) -> Training:
    model = Decoder(tied=False, norm=nn.RMSNorm, gated=True)
    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), lambda: next_word_loss(model, text()), cast)


@program()
def accumulated_and_clipped(cast: Cast) -> Training:
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> None:
        for _ in range(3):
            with cast():
                loss = next_word_loss(model, text()) / 3
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Training([model], [optimizer], step)


class Checkpointed(Decoder):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


@program()
def checkpointed(cast: Cast) -> Training:
    model = Checkpointed()
    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), lambda: next_word_loss(model, text()), cast)


class Experts(nn.Module):
    """Two of four experts a token, with a loss that balances them."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 32), nn.SiLU(), nn.Linear(32, WIDTH)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        flat = x.flatten(0, 1)
        shares = self.router(flat).float().softmax(-1)
        weights, chosen = shares.topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == number)
            out.index_add_(0, rows, (expert(flat[rows]) * weights[rows, place, None]).to(out.dtype))
        balance = (F.one_hot(chosen, 4).float().mean((0, 1)) * shares.mean(0)).sum() * 4
        return out.view_as(x), balance


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.experts, self.head = nn.Embedding(WORDS, WIDTH), Experts(), nn.Linear(WIDTH, WORDS)


@program()
def mixture_of_experts(cast: Cast) -> Training:
    model = Sparse()

    def loss() -> torch.Tensor:
        tokens = text()
        hidden, balance = model.experts(model.words(tokens[:, :-1]))
        return F.cross_entropy(model.head(hidden).flatten(0, 1).float(), tokens[:, 1:].flatten()) + 0.01 * balance

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


@program()
def padded_and_masked(cast: Cast) -> Training:
    model = Decoder()

    def loss() -> torch.Tensor:
        tokens = text(3)
        labels = tokens[:, 1:].clone()
        labels[0, 6:] = -100
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), labels.flatten(), label_smoothing=0.1)

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


@program()
def preferences(cast: Cast) -> Training:
    """Direct preference optimisation against a frozen copy."""
    model = Decoder()
    frozen = copy.deepcopy(model).requires_grad_(False)

    def score(scorer: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        logits = scorer(tokens[:, :-1]).float().log_softmax(-1)
        return logits.gather(-1, tokens[:, 1:, None]).squeeze(-1).sum(-1)

    def loss() -> torch.Tensor:
        better, worse = text(), text()
        gain = (score(model, better) - score(frozen, better)) - (score(model, worse) - score(frozen, worse))
        return -F.logsigmoid(0.1 * gain).mean()

    made = trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)
    made.models.append(frozen)
    return made


@program()
def distillation(cast: Cast) -> Training:
    model, teacher = Decoder(1), Decoder(2).requires_grad_(False)

    def loss() -> torch.Tensor:
        tokens = text()
        with torch.no_grad():
            goal = (teacher(tokens).float() / 2).softmax(-1)
        return F.kl_div((model(tokens).float() / 2).log_softmax(-1), goal, reduction="batchmean") * 4

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


class LowRank(nn.Module):
    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(4, inner.in_features) / 4)
        self.b = nn.Parameter(torch.zeros(inner.out_features, 4))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 2.0 * F.linear(F.linear(self.dropout(x), self.a), self.b)


@program()
def low_rank_adapters(cast: Cast) -> Training:
    model = Decoder().requires_grad_(False)
    for block in model.blocks:
        block.qkv = LowRank(block.qkv)
    trainable = [p for p in model.parameters() if p.requires_grad]
    return trained(model, torch.optim.AdamW(trainable, 1e-2), lambda: next_word_loss(model, text()), cast)


def _transformers(cast: Cast, make: str, **config: object) -> Training:
    import transformers

    model = getattr(
        transformers, make.replace("Config", "LMHeadModel") if make == "GPT2Config" else config.pop("model")
    )(getattr(transformers, make)(**config))
    model.train()
    return trained(
        model,
        torch.optim.AdamW(model.parameters(), 1e-3),
        lambda: model(input_ids=(tokens := text()), labels=tokens).loss,
        cast,
    )


@program()
def transformers_gpt2(cast: Cast) -> Training:
    return _transformers(cast, "GPT2Config", vocab_size=WORDS, n_positions=16, n_embd=16, n_layer=2, n_head=2)


@program()
def transformers_llama(cast: Cast) -> Training:
    return _transformers(
        cast, "LlamaConfig", model="LlamaForCausalLM", vocab_size=WORDS, hidden_size=16, intermediate_size=32,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
    )  # fmt: skip


@program()
def transformers_bert(cast: Cast) -> Training:
    return _transformers(
        cast, "BertConfig", model="BertForMaskedLM", vocab_size=WORDS, hidden_size=16, intermediate_size=32,
        num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=16,
    )  # fmt: skip


@program()
def transformers_t5(cast: Cast) -> Training:
    return _transformers(
        cast, "T5Config", model="T5ForConditionalGeneration", vocab_size=WORDS, d_model=16, d_kv=8, d_ff=32,
        num_layers=2, num_heads=2, decoder_start_token_id=0,
    )  # fmt: skip
