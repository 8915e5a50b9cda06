"""TRL's trainer for supervised fine-tuning, as it is delivered."""

from __future__ import annotations

from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from plumbline.integrations.trl import AuditCallback

STEPS = 3


def words() -> PreTrainedTokenizerFast:
    known = {word: number for number, word in enumerate(["<unk>", "<pad>", "<eos>", *"abcdefghij"])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>")


def tuned(folder: Path, *callbacks: AuditCallback) -> torch.nn.Module:
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=16, num_attention_heads=2, num_key_value_heads=1, **size))
    arguments = SFTConfig(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        save_strategy="no",
    )
    rows = Dataset.from_dict({"input_ids": [[3 + i * j % 10 for j in range(6 + i % 3)] for i in range(16)]})
    trainer = SFTTrainer(model, arguments, train_dataset=rows, processing_class=words(), callbacks=list(callbacks))
    trainer.train()
    return trainer.model


def test_supervised_fine_tuning(server: str, tmp_path: Path) -> None:
    callback = AuditCallback(server, job="tuned", every=1)
    watched = tuned(tmp_path, callback)
    plain = tuned(tmp_path)
    assert callback.audit is not None and not callback.audit.errors() and not callback.audit.missed()
    assert [verdict.verdict for verdict in callback.audit.verdicts()] == ["TYPE_I"] * STEPS
    for verdict in callback.audit.verdicts():
        assert {"loss", "update:model.layers.0.mlp.up_proj.weight"} <= set(verdict.taps)
    assert all(torch.equal(a, b) for a, b in zip(watched.parameters(), plain.parameters(), strict=True))
    callback.close()
