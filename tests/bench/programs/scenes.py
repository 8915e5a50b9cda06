"""Scenes, shapes and sounds: radiance fields, point clouds, boxes, masks, waves."""

import torch
import torch.nn.functional as F
from torch import nn

from .generative import mlp
from .training import Cast, Training, program, trained


@program(wrong=r"cumprod|exp|sub")
def radiance_field(cast: Cast, wrong: bool) -> Training:
    """Colours along rays, weighed by how much light comes through; the bug forgets how far samples lie apart."""
    field = mlp(12, 32, 4)
    powers = 2.0 ** torch.arange(2)

    def loss() -> torch.Tensor:
        start, towards = torch.randn(6, 1, 3), F.normalize(torch.randn(6, 1, 3), dim=-1)
        depth = (torch.arange(8) + torch.rand(6, 8)) / 8
        points = start + depth[..., None] * towards
        angles = (points[..., None, :] * powers[:, None]).flatten(-2)
        colour, density = field(torch.cat([angles.sin(), angles.cos()], -1)).float().split([3, 1], -1)
        steps = torch.cat([depth.diff(dim=1), torch.full((6, 1), 0.1)], 1)
        opaque = 1 - torch.exp(-F.softplus(density.squeeze(-1)) * (1.0 if wrong else steps))
        through = torch.cumprod(torch.cat([torch.ones(6, 1), 1 - opaque + 1e-10], 1), 1)[:, :-1]
        seen = (opaque * through)[..., None] * colour.sigmoid()
        return F.mse_loss(seen.sum(1), torch.rand(6, 3))

    return trained(field, torch.optim.Adam(field.parameters(), 1e-3), loss, cast)


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turn, self.each, self.norm = mlp(3, 16, 9), nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16)
        self.out = nn.Linear(16, 24)

    def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turn = self.turn(points).max(1).values.float().view(-1, 3, 3) + torch.eye(3)
        x = F.relu(self.norm(self.each(torch.bmm(points, turn.to(points.dtype)).transpose(1, 2))))
        return self.out(x.amax(2)).float().view(-1, 8, 3), turn


@program(wrong=r"amin|min|mean")
def point_clouds(cast: Cast, wrong: bool) -> Training:
    """Chamfer's distance, and turns that are kept orthogonal; the bug measures one way alone."""
    model = PointNet()

    def loss() -> torch.Tensor:
        points = torch.randn(4, 8, 3)
        made, turn = model(points)
        apart = torch.cdist(made, points).square()
        there, back = apart.amin(1).mean(), apart.amin(2).mean()
        bent = (turn @ turn.mT - torch.eye(3)).square().sum((1, 2)).mean()
        return there + (there if wrong else back) + 0.01 * bent

    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)


def overlap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Generalised intersection over union of boxes, corner by corner."""
    low, high = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    common = (high - low).clamp(min=0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - common
    around = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).prod(1)
    return common / union - (around - union) / around


@program(wrong=r"where|mul|rsub")
def anchors(cast: Cast, wrong: bool) -> Training:
    """One-stage detection: focal loss and boxes by their overlap; the bug weighs foreground as background."""
    body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.ReLU())
    model = nn.ModuleDict({"body": body, "kinds": nn.Conv2d(8, 3, 3, 1, 1), "boxes": nn.Conv2d(8, 4, 3, 1, 1)})

    def loss() -> torch.Tensor:
        seen = model["body"](torch.randn(2, 3, 8, 8))
        kinds = model["kinds"](seen).permute(0, 2, 3, 1).reshape(-1, 3).float()
        boxes = model["boxes"](seen).permute(0, 2, 3, 1).reshape(-1, 4).float()
        label = torch.randint(0, 4, (32,))
        one_hot = F.one_hot(label, 4)[:, :3].float()
        chance = kinds.sigmoid()
        right = torch.where(one_hot == 1, chance, 1 - chance)
        share = torch.where((one_hot == 1) != wrong, 0.25, 0.75)
        focal = share * (1 - right) ** 2 * F.binary_cross_entropy_with_logits(kinds, one_hot, reduction="none")
        held = label < 3
        centre, size = boxes[held, :2], F.softplus(boxes[held, 2:]) + 0.1
        goal = torch.rand(32, 2)[held]
        given = torch.cat([centre - size / 2, centre + size / 2], 1)
        asked = torch.cat([goal - 0.5, goal + 0.5], 1)
        return (focal.sum() + (1 - overlap(given, asked)).sum()) / held.sum().clamp(min=1)

    return trained(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), loss, cast)


@program()
def sharpened_pictures(cast: Cast) -> Training:
    """Super-resolution against a frozen network's features, with total variation."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.PReLU(), nn.Conv2d(8, 12, 3, 1, 1), nn.PixelShuffle(2))
    eyes = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(2)).eval().requires_grad_(False)

    def loss() -> torch.Tensor:
        fine = torch.rand(2, 3, 16, 16)
        coarse = F.interpolate(fine, scale_factor=0.5, mode="bicubic", antialias=True)
        made = model(coarse).float()
        rough = (made[..., 1:, :] - made[..., :-1, :]).abs().mean() + (made[..., 1:] - made[..., :-1]).abs().mean()
        charbonnier = ((made - fine).square() + 1e-6).sqrt().mean()
        return charbonnier + F.l1_loss(eyes(made).float(), eyes(fine).float()) + 0.01 * rough

    made = trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss, cast)
    made.models.append(eyes)
    return made


@program(wrong=r"sum|mean|mul|div")
def overlapping_masks(cast: Cast, wrong: bool) -> Training:
    """Dice and boundary losses of a small U-Net; the bug forgets that an intersection counts twice."""
    down, up = nn.Conv2d(1, 8, 3, 2, 1), nn.ConvTranspose2d(8, 8, 2, 2)
    model = nn.ModuleDict(
        {"down": down, "norm": nn.InstanceNorm2d(8, affine=True), "up": up, "out": nn.Conv2d(9, 3, 1)}
    )

    def loss() -> torch.Tensor:
        x, goal = torch.randn(2, 1, 8, 8), torch.randint(0, 3, (2, 8, 8))
        inner = F.leaky_relu(model["norm"](model["down"](x)), 0.1)
        logits = model["out"](torch.cat([model["up"](inner), x], 1)).float()
        shares, held = logits.softmax(1), F.one_hot(goal, 3).permute(0, 3, 1, 2).float()
        common, all_ = (shares * held).sum((0, 2, 3)), (shares + held).sum((0, 2, 3))
        dice = 1 - (((1 if wrong else 2) * common + 1e-5) / (all_ + 1e-5)).mean()
        edges = F.max_pool2d(held, 3, 1, 1) + F.max_pool2d(-held, 3, 1, 1)
        return dice + F.cross_entropy(logits, goal) + (edges * (shares - held).abs()).mean()

    return trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)


@program(wrong=r"abs|log|spectr|stft|fft|clamp")
def vocoder(cast: Cast, wrong: bool) -> Training:
    """A wave from frames, judged in several resolutions; the bug compares powers where it means magnitudes."""
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.ConvTranspose1d(6, 8, 8, 4, 2)),
        nn.LeakyReLU(0.1),
        nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 1, 7, padding=3)),
    )

    def seen(wave: torch.Tensor, size: int) -> torch.Tensor:
        window = torch.hann_window(size)
        spectrum = torch.stft(wave, size, size // 4, window=window, return_complex=True)
        power = torch.view_as_real(spectrum).square().sum(-1)
        return power if wrong else power.clamp(min=1e-7).sqrt()

    def loss() -> torch.Tensor:
        made, goal = model(torch.randn(2, 6, 16)).float().tanh().squeeze(1), torch.randn(2, 64) * 0.1
        total = torch.zeros(())
        for size in (8, 16):
            ours, theirs = seen(made, size), seen(goal, size)
            total = total + (theirs - ours).norm() / theirs.norm() + F.l1_loss(ours.log(), theirs.log())
        return total

    return trained(model, torch.optim.RAdam(model.parameters(), 1e-3), loss, cast)
