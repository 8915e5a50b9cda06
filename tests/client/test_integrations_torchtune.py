"""A recipe of torchtune, as it is delivered, on a small model and on data of our own."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torchtune
from omegaconf import OmegaConf
from torchtune.models.llama3 import llama3

from plumbline.integrations.torchtune import audited

RECIPE = Path(torchtune.__file__).parents[1] / "recipes" / "full_finetune_single_device.py"  # As `tune run` finds it.


def model() -> torch.nn.Module:
    return llama3(
        vocab_size=32, num_layers=1, num_heads=2, num_kv_heads=1, embed_dim=16, max_seq_len=16, intermediate_dim=24
    )


def tokenizer() -> SimpleNamespace:
    return SimpleNamespace(pad_id=0, max_seq_len=16)


class Rows(torch.utils.data.Dataset):
    def __init__(self, tokenizer: Any) -> None:
        pass

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        tokens = torch.randint(1, 32, (6,), generator=torch.Generator().manual_seed(index)).tolist()
        return {"tokens": tokens, "labels": tokens}


def configuration(folder: Path) -> Any:
    checkpoints, output = folder / "in", folder / "out"
    checkpoints.mkdir(exist_ok=True)
    torch.manual_seed(0)
    torch.save(model().state_dict(), checkpoints / "model.pt")
    return OmegaConf.create(
        {
            "model": {"_component_": f"{__name__}.model"},
            "tokenizer": {"_component_": f"{__name__}.tokenizer"},
            "dataset": {"_component_": f"{__name__}.Rows"},
            "checkpointer": {
                "_component_": "torchtune.training.FullModelTorchTuneCheckpointer",
                "checkpoint_dir": str(checkpoints),
                "checkpoint_files": ["model.pt"],
                "model_type": "LLAMA3",
                "output_dir": str(output),
            },
            "optimizer": {"_component_": "torch.optim.AdamW", "lr": 1e-3},
            "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
            "metric_logger": {
                "_component_": "torchtune.training.metric_logging.DiskLogger",
                "log_dir": str(output),
            },
            "output_dir": str(output),
            "resume_from_checkpoint": False,
            "device": "cpu",
            "dtype": "fp32",
            "seed": 1,
            "shuffle": True,
            "epochs": 1,
            "max_steps_per_epoch": None,
            "batch_size": 2,
            "gradient_accumulation_steps": 2,
            "clip_grad_norm": 1.0,
            "optimizer_in_bwd": False,
            "compile": False,
            "enable_activation_checkpointing": True,
            "enable_activation_offloading": False,
        }
    )


def test_full_fine_tuning(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = runpy.run_path(str(RECIPE))["FullFinetuneRecipeSingleDevice"]
    monkeypatch.setattr(kind, "save_checkpoint", lambda *_, **__: None)
    plain, watched = (kind(cfg=configuration(tmp_path)) for _ in range(2))
    plain.setup(configuration(tmp_path))
    plain.train()
    watched.setup(configuration(tmp_path))
    with audited(watched, server, every=1) as steps:
        watched.train()
    assert steps.steps == 2 and not steps.errors() and not steps.missed
    assert [verdict.verdict for verdict in steps.verdicts()] == ["TYPE_I"] * 2
    assert "update:tok_embeddings.weight" in steps.verdicts()[0].taps
    assert steps.audits[0].identity.job == "FullFinetuneRecipeSingleDevice"
    assert all(torch.equal(a, b) for a, b in zip(plain._model.parameters(), watched._model.parameters(), strict=True))
