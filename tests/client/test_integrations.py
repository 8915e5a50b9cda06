"""Training loops of other libraries, as they are delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import plumbline
from plumbline.integrations.accelerate import audited
from plumbline.integrations.transformers import AuditCallback

STEPS = 3


class Sentences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        draw = torch.Generator().manual_seed(index)
        return {"input_ids": torch.randint(0, 50, (7,), generator=draw), "labels": torch.tensor(index % 2)}


def trainer(folder: Path, *callbacks: AuditCallback) -> Trainer:
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    model = BertForSequenceClassification(BertConfig(vocab_size=50, **size))
    return Trainer(model, arguments, train_dataset=Sentences(), callbacks=list(callbacks))


def test_hugging_face_s_trainer(server: str, tmp_path: Path) -> None:
    audited = AuditCallback(server, job="trainer", every=1)
    watched = trainer(tmp_path, audited)
    watched.train()
    plain = trainer(tmp_path)
    plain.train()
    assert audited.audit is not None and not audited.audit.errors()
    assert [verdict.verdict for verdict in audited.audit.verdicts()] == ["TYPE_I"] * STEPS
    for verdict in audited.audit.verdicts():
        names = {tap.name for tap in verdict.message.taps}
        assert {"loss", "update:classifier.weight", "state:classifier.bias.exp_avg"} <= names
    assert all(torch.equal(a, b) for a, b in zip(watched.model.parameters(), plain.model.parameters(), strict=True)), (
        "training is untouched"
    )
    audited.close()


def test_a_trainer_that_raises_leaves_nothing_behind(server: str, tmp_path: Path) -> None:
    audited = AuditCallback(server, job="raises", every=1)
    training = trainer(tmp_path, audited)
    training.compute_loss = lambda *_, **__: 1 / 0
    with pytest.raises(ZeroDivisionError):
        training.train()
    audited.close()
    training = trainer(tmp_path, audited)
    training.train()
    assert [verdict.verdict for verdict in audited.audit.verdicts()] == ["TYPE_I"] * STEPS
    audited.close()


def prepared() -> tuple[Accelerator, nn.Module, torch.optim.Optimizer, Any, Any]:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(net.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    data = torch.utils.data.TensorDataset(torch.randn(16, 8), torch.randn(16, 4))
    batches = torch.utils.data.DataLoader(data, batch_size=2)
    return accelerator, *accelerator.prepare(net, optimizer, scheduler, batches)


def train(
    accelerator: Accelerator, net: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any, batches: Any
) -> None:
    for x, y in batches:
        with accelerator.accumulate(net):
            accelerator.backward((net(x) - y).square().mean())
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()


def test_a_loop_that_accelerate_prepared(server: str) -> None:
    plain, watched = prepared(), prepared()
    train(*plain)
    with audited(watched[0], server, job="prepared", every=1) as steps:
        train(*watched)
    assert steps.steps == 4 and not steps.errors() and not steps.missed
    assert [verdict.verdict for verdict in steps.verdicts()] == ["TYPE_I"] * 4
    assert all("update:0.weight" in verdict.taps for verdict in steps.verdicts())
    assert all(torch.equal(a, b) for a, b in zip(plain[1].parameters(), watched[1].parameters(), strict=True))


def test_what_accelerate_wraps_is_watched(server: str) -> None:
    accelerator, net, optimizer, scheduler, batches = prepared()
    audit = plumbline.watch(net, optimizer, server, job="accelerate", every=1)
    for x, y in batches:
        with audit.step(), accelerator.accumulate(net):
            accelerator.backward((net(x) - y).square().mean())
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        assert audit.flush()
    assert not audit.errors()
    verdicts = audit.verdicts()
    assert [verdict.verdict for verdict in verdicts] == ["TYPE_I"] * 8
    updated = ["update:0.weight" in {tap.name for tap in verdict.message.taps} for verdict in verdicts]
    assert updated == [False, True] * 4
    audit.close()
