"""Lightning's Trainer, as it is delivered."""

from __future__ import annotations

from pathlib import Path

import lightning.pytorch as lightning
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from plumbline.integrations.lightning import AuditCallback


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 4))

    def loss(self, batch: list[Tensor]) -> Tensor:
        x, y = batch
        return (self.net(x) - y).square().mean()

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        self.log("loss", self.loss(batch))

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters())
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


class Adversaries(Regression):
    """Steps its optimizers by hand."""

    automatic_optimization = False

    def training_step(self, batch: list[Tensor], index: int) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.net[0], self.net[3])]


def fit(
    kind: type[Regression], folder: Path, *callbacks: AuditCallback, batches: int = 4, **options: object
) -> Regression:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(16, 8), torch.randn(16, 4))
    model = kind()
    trainer = lightning.Trainer(
        max_epochs=2,
        limit_train_batches=batches,
        accelerator="cpu",
        callbacks=list(callbacks),
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(model, DataLoader(data, 4), DataLoader(data, 16))
    return model


@pytest.mark.parametrize(
    "kind, batches, options",
    [(Regression, 4, {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0}), (Adversaries, 2, {})],
    ids=["automatic", "by_hand"],
)
def test_lightning_s_trainer(server: str, tmp_path: Path, kind: type[Regression], batches: int, options: dict) -> None:
    callback = AuditCallback(server, every=1)
    watched = fit(kind, tmp_path, callback, batches=batches, **options)
    plain = fit(kind, tmp_path, batches=batches, **options)
    assert callback.audit is not None and not callback.audit.errors() and not callback.audit.missed()
    assert callback.audit.identity.job == kind.__name__
    assert [verdict.verdict for verdict in callback.audit.verdicts()] == ["TYPE_I"] * 4
    for verdict in callback.audit.verdicts():
        assert {"loss", "update:net.0.weight", "update:net.3.bias", "buffer:net.1.running_mean"} <= set(verdict.taps)
    assert all(torch.equal(a, b) for a, b in zip(watched.parameters(), plain.parameters(), strict=True))
    callback.close()


def test_a_fit_that_raises_leaves_nothing_behind(server: str, tmp_path: Path) -> None:
    class Fails(Regression):
        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return super().training_step(batch, index) / (1 if index else 1 / 0)

    callback = AuditCallback(server, job="fails", every=1)
    with pytest.raises(ZeroDivisionError):
        fit(Fails, tmp_path, callback)
    fit(Regression, tmp_path, callback, batches=2)
    assert [verdict.verdict for verdict in callback.audit.verdicts()] == ["TYPE_I"] * 4
    callback.close()
