"""Models of images, speech and sequences: of the `transformers` package, and of torch.nn alone."""

import contextlib

import torch
import torch.nn.functional as F
import transformers as hf
from family import ROWS, VOCABULARY, Batch, Family, labelled_loss, token_ids
from optimizers import adam, adamw, fused_adamw, rmsprop, sgd
from torch import Tensor, nn

CLASSES, SIDE, IMAGES = 10, 16, 24


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm_1 = nn.BatchNorm2d(outputs)
        self.conv_2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm_2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm_1(self.conv_1(x)))
        return F.relu(self.norm_2(self.conv_2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Residual(16, 32, 2), nn.AvgPool2d(2))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(32, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.pool(self.blocks(self.stem(images))).flatten(1))


class UNet(nn.Module):
    """Down by a strided convolution and by pooling, up by interpolation and by a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = self.block(3, 8)
        self.down_1, self.down_2 = nn.Conv2d(8, 16, 3, 2, 1), nn.MaxPool2d(2)
        self.middle = nn.Sequential(self.block(16, 16), self.block(16, 16))
        self.up_2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.join_2 = self.block(32, 16)
        self.up_1 = nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.smooth = nn.Upsample(scale_factor=2, mode="nearest")
        self.join_1 = self.block(24, 8)
        self.head = nn.Conv2d(8, CLASSES, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.Mish())

    def forward(self, images: Tensor) -> Tensor:
        wide = self.stem(images)
        half = F.silu(self.down_1(wide))
        deep = self.middle(self.down_2(half))
        half = self.join_2(torch.cat([self.up_2(deep), half], 1))
        whole = torch.cat([self.up_1(half), self.smooth(half)], 1)
        return self.head(self.join_1(whole)).permute(0, 2, 3, 1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.lstm = nn.LSTM(16, 24, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, VOCABULARY)

    def forward(self, input_ids: Tensor) -> Tensor:
        with contextlib.nullcontext() if onednn_has_this_layer() else torch.backends.mkldnn.flags(enabled=False):
            return self.head(self.lstm(self.embed(input_ids))[0])


def onednn_has_this_layer() -> bool:
    """PyTorch asks oneDNN for LSTM layers in autocast's bf16 even where the processor has none there, and raises. Its
    own cells do it."""
    return not torch.is_autocast_enabled("cpu") or torch.ops.mkldnn._is_mkldnn_bf16_supported()


def vit() -> nn.Module:
    return hf.ViTForImageClassification(
        hf.ViTConfig(
            image_size=SIDE, patch_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=64, num_labels=CLASSES,
        )
    )  # fmt: skip


def whisper() -> nn.Module:
    return hf.WhisperForConditionalGeneration(
        hf.WhisperConfig(
            vocab_size=VOCABULARY, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
            max_source_positions=12, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=1, dropout=0.0,
        )
    )  # fmt: skip


def labelled_images(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each class has a pattern of its own, under noise."""
    labels = torch.randint(0, CLASSES, (IMAGES,), generator=draw)
    patterns = torch.randn(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    return patterns[labels] + 0.5 * torch.randn(IMAGES, 3, SIDE, SIDE, generator=draw), labels


def classified(draw: torch.Generator) -> Batch:
    images, labels = labelled_images(draw)
    return {"pixel_values": images, "labels": labels}


def classified_images(draw: torch.Generator) -> Batch:
    images, labels = labelled_images(draw)
    return {"images": images, "labels": labels}


def segmented(draw: torch.Generator) -> Batch:
    """Each pixel's class is its strongest channel."""
    images, _ = labelled_images(draw)
    return {"images": images, "labels": images.argmax(1)}


def speech(draw: torch.Generator) -> Batch:
    features = torch.randn(ROWS, 8, 24, generator=draw)
    return {"input_features": features, "decoder_input_ids": token_ids(draw, 8), "labels": token_ids(draw, 8)}


def tagged(draw: torch.Generator) -> Batch:
    return {"input_ids": token_ids(draw), "labels": token_ids(draw)}


FAMILIES = [
    Family("ViT", vit, classified, labelled_loss, adam),
    Family("Whisper", whisper, speech, labelled_loss, adamw),
    Family("ResNet", ResNet, classified_images, labelled_loss, sgd, splits=False),
    Family("U-Net", UNet, segmented, labelled_loss, fused_adamw),
    Family("LSTM", Recurrent, tagged, labelled_loss, rmsprop),
]
