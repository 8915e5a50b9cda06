"""Language models of the `transformers` package, random weights, small widths."""

import torch
import transformers as hf
from family import ROWS, TIME, VOCABULARY, Batch, Family, labelled_loss, next_token_loss, token_ids, tokens
from optimizers import adafactor, adagrad, adam, adamw, lion, rmsprop, sgd
from torch import nn

WIDTH, LAYERS, HEADS = 32, 2, 4

_DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def gpt2() -> nn.Module:
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=VOCABULARY, n_positions=32, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, bos_token_id=0,
            eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )  # fmt: skip


def llama() -> nn.Module:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**_DECODER))


def mistral() -> nn.Module:
    return hf.MistralForCausalLM(hf.MistralConfig(**_DECODER, sliding_window=6))


def qwen2() -> nn.Module:
    return hf.Qwen2ForCausalLM(hf.Qwen2Config(**_DECODER))


def gemma() -> nn.Module:
    return hf.GemmaForCausalLM(hf.GemmaConfig(**_DECODER, head_dim=WIDTH // HEADS))


def mixtral() -> nn.Module:
    return hf.MixtralForCausalLM(hf.MixtralConfig(**_DECODER, num_local_experts=4, num_experts_per_tok=2))


def mamba() -> nn.Module:
    return hf.MambaForCausalLM(
        hf.MambaConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, state_size=8, num_hidden_layers=LAYERS)
    )


def bert() -> nn.Module:
    return hf.BertForMaskedLM(
        hf.BertConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            intermediate_size=2 * WIDTH, max_position_embeddings=32, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


def t5() -> nn.Module:
    return hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=VOCABULARY, d_model=WIDTH, d_kv=8, d_ff=2 * WIDTH, num_layers=LAYERS, num_heads=HEADS,
            dropout_rate=0.0, decoder_start_token_id=0,
        )
    )  # fmt: skip


def masked_tokens(draw: torch.Generator) -> Batch:
    """The last rows are shorter; a third of the tokens is hidden."""
    labels = token_ids(draw)
    hidden = torch.rand(labels.shape, generator=draw) < 0.33
    lengths = TIME - torch.tensor([0, 3, 5, 0]).repeat(ROWS // 4).unsqueeze(1)
    mask = (torch.arange(TIME) < lengths).long()
    return {"input_ids": labels.masked_fill(hidden, 3), "attention_mask": mask, "labels": labels}


def translation(draw: torch.Generator) -> Batch:
    return {"input_ids": token_ids(draw), "decoder_input_ids": token_ids(draw, 8), "labels": token_ids(draw, 8)}


FAMILIES = [
    Family("GPT-2", gpt2, tokens, next_token_loss, adamw),
    Family("Llama", llama, tokens, next_token_loss, adamw),
    Family("Mistral", mistral, tokens, next_token_loss, adam),
    Family("Qwen2", qwen2, tokens, next_token_loss, lion),
    Family("Gemma", gemma, tokens, next_token_loss, rmsprop),
    Family("T5", t5, translation, labelled_loss, adafactor),
    Family("BERT", bert, masked_tokens, labelled_loss, adagrad),
    Family("Mixtral", mixtral, tokens, next_token_loss, adamw),
    Family("Mamba", mamba, tokens, next_token_loss, sgd),
]
