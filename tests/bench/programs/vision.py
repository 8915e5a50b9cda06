"""Images: convolutions, attention on patches, and what is done to data and labels."""

import torch
import torch.nn.functional as F
from torch import nn

from .training import Cast, Training, program, trained


def images(rows: int = 4, size: int = 8) -> torch.Tensor:
    return torch.randn(rows, 3, size, size)


def labels(rows: int = 4) -> torch.Tensor:
    return torch.randint(0, 5, (rows,))


def small_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 5),
    )  # fmt: skip


@program()
def convolutions(cast: Cast) -> Training:
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    return trained(model, optimizer, lambda: F.cross_entropy(model(images()).float(), labels()), cast)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm_a, self.norm_b = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norm_b(self.b(F.relu(self.norm_a(self.a(x))))))


@program()
def residual_network(cast: Cast) -> Training:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    return trained(model, optimizer, lambda: F.cross_entropy(model(images()).float(), labels()), cast)


@program()
def mixup(cast: Cast) -> Training:
    model = small_network()

    def loss() -> torch.Tensor:
        x, y = images(), labels()
        share, order = torch.rand(()), torch.randperm(4)
        out = model(share * x + (1 - share) * x[order]).float()
        return share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


class UNet(nn.Module):
    def __init__(self, out: int = 2) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.norm, self.up = nn.GroupNorm(4, 16), nn.ConvTranspose2d(16, 8, 2, 2)
        self.last = nn.Conv2d(16, out, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = F.silu(self.first(x))
        coarse = F.silu(self.norm(self.down(fine)))
        return self.last(torch.cat([fine, self.up(coarse)], 1))


@program()
def segmentation(cast: Cast) -> Training:
    model = UNet()

    def loss() -> torch.Tensor:
        out, y = model(images()).float(), torch.randint(0, 2, (4, 8, 8))
        chance = out.softmax(1)[:, 1]
        dice = 1 - 2 * (chance * y).sum() / (chance.sum() + y.sum() + 1)
        return F.cross_entropy(out, y) + dice

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.places = nn.Parameter(torch.randn(1, 5, 16) * 0.02)
        self.body = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True, norm_first=True), 2
        )
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.cut(x).flatten(2).transpose(1, 2)
        return self.head(self.body(torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.places)[:, 0])


@program()
def patches(cast: Cast) -> Training:
    model = Patches()
    return trained(
        model,
        torch.optim.AdamW(model.parameters(), 1e-3),
        lambda: F.cross_entropy(model(images()).float(), labels(), label_smoothing=0.1),
        cast,
    )


@program()
def masked_autoencoder(cast: Cast) -> Training:
    model = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 12))

    def loss() -> torch.Tensor:
        parts = F.unfold(images(), 2, stride=2).transpose(1, 2)
        hidden = torch.rand(parts.shape[:2]) < 0.6
        out = model(parts.masked_fill(hidden[..., None], 0.0)).float()
        return ((out - parts).square().mean(-1) * hidden).sum() / hidden.sum()

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


@program()
def detection(cast: Cast) -> Training:
    """Boxes by smooth L1, objects by the focal loss."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 5, 1))

    def loss() -> torch.Tensor:
        out, boxes = model(images()).float(), torch.randn(4, 4, 8, 8)
        there = (torch.rand(4, 8, 8) < 0.2).float()
        each = F.binary_cross_entropy_with_logits(out[:, 4], there, reduction="none")
        chance = torch.exp(-each)
        return ((1 - chance) ** 2 * each).mean() + (
            F.smooth_l1_loss(out[:, :4], boxes, reduction="none") * there[:, None]
        ).mean()

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


@program()
def super_resolution(cast: Cast) -> Training:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.PReLU(), nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2)
    )

    def loss() -> torch.Tensor:
        fine = images(2, 16)
        coarse = F.interpolate(fine, scale_factor=0.5, mode="bilinear")
        return F.l1_loss(model(coarse).float() + F.interpolate(coarse, scale_factor=2.0, mode="bicubic"), fine)

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


@program()
def spatial_transformer(cast: Cast) -> Training:
    place, model = nn.Linear(192, 6), small_network()
    nn.init.zeros_(place.weight)
    place.bias.data.copy_(torch.tensor([1.0, 0.1, 0.05, -0.1, 0.9, 0.02]))
    both = nn.ModuleList([place, model])

    def loss() -> torch.Tensor:
        x = images()
        grid = F.affine_grid(place(x.flatten(1)).float().view(-1, 2, 3), list(x.shape), align_corners=False)
        return F.cross_entropy(model(F.grid_sample(x, grid, align_corners=False)).float(), labels())

    return trained(both, torch.optim.SGD(both.parameters(), 0.01), loss, cast)


@program()
def transformers_vit(cast: Cast) -> Training:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4,
        num_labels=5,
    )  # fmt: skip
    model = ViTForImageClassification(config).train()
    return trained(
        model, torch.optim.AdamW(model.parameters(), 1e-3), lambda: model(images(), labels=labels()).loss, cast
    )
