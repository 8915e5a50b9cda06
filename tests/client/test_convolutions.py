"""Convolutions of 16-bit numbers: how their kernels add up is told, and is what they really do."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import plumbline
from plumbline import convolutions
from plumbline.v1.trace_pb2 import Op

NARROW = [torch.bfloat16, torch.float16]
HALF_OF_LAST_PLACE = {torch.bfloat16: 2.0**8, torch.float16: 2.0**11}  # Of it and 1 the sum is halfway, and 1 is lost.


def without_onednn() -> AbstractContextManager[None]:
    return torch.backends.mkldnn.flags(enabled=False)


def told(transposed: bool, dtype: torch.dtype, groups: int = 1) -> int:
    x, w = torch.ones(1, 4, 3, 3, dtype=dtype), torch.ones(4, 4 // groups, 3, 3, dtype=dtype)
    return convolutions.summation(
        "aten::convolution.default", (x, w, None, [1, 1], [0, 0], [1, 1], transposed, [0, 0], groups)
    )


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("within", [nullcontext, without_onednn])
def test_what_is_told_is_what_the_kernel_does(dtype: torch.dtype, within: type[AbstractContextManager[None]]) -> None:
    """Taps 256, 1 and 1 (2048 in fp16) are 258 as one sum, and 256 where each addition is rounded; samples likewise."""
    large = HALF_OF_LAST_PLACE[dtype]
    with within():
        parts = told(True, dtype)
        x = torch.ones(1, 1, 1, 3, dtype=dtype)
        taps = F.conv_transpose2d(x, torch.tensor([large, 1, 1], dtype=dtype).view(1, 1, 1, 3))[0, 0, 0, 2]
        assert parts == (Op.IN_PARTS if taps == large else Op.WHOLE)
        weight = torch.ones(1, 1, 1, 1, dtype=dtype, requires_grad=True)
        samples = torch.tensor([large, 1, 1], dtype=dtype).view(3, 1, 1, 1)
        (gradient,) = torch.autograd.grad(F.conv2d(samples, weight).sum(), weight)
        assert (gradient == large) == (told(False, dtype) == Op.IN_PARTS)
    if within is without_onednn:
        assert parts == Op.IN_PARTS


def test_wide_formats_and_other_operations_tell_nothing() -> None:
    assert told(True, torch.float32) == told(False, torch.float64) == Op.SUMMATION_UNSPECIFIED
    assert convolutions.summation("aten::add.Tensor", ()) == Op.SUMMATION_UNSPECIFIED


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 16, 7, 2, 3), nn.Conv2d(16, 24, 3, 2, 1, groups=2)
        self.up, self.alone = nn.ConvTranspose2d(24, 8, 4, 2, 1), nn.ConvTranspose2d(8, 8, 3, groups=8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.alone(torch.tanh(self.up(torch.relu(self.down(torch.relu(self.first(x)))))))


@pytest.mark.parametrize("capture", ["leaves", "outputs"])
@pytest.mark.parametrize("within", [nullcontext, without_onednn])
@pytest.mark.parametrize("dtype", NARROW)
def test_a_network_of_convolutions_is_not_accused(
    dtype: torch.dtype, within: type[AbstractContextManager[None]], capture: str, server: str
) -> None:
    torch.manual_seed(5)
    model, images = Images().to(dtype), torch.randn(6, 3, 33, 29).to(dtype)

    def step() -> dict[str, torch.Tensor]:
        with within():
            loss = model(images).float().square().mean()
            gradients = torch.autograd.grad(loss, list(model.parameters()))
        return {"loss": loss.detach()} | {f"d{i}": gradient for i, gradient in enumerate(gradients)}

    verdict = plumbline.compare(step, None, server, capture=capture)
    # Of a network's envelope sums in 16 bits may leave nothing to say; each operation is answered for by itself.
    vague = capture == "leaves" and verdict.cause == "UNANSWERED"
    assert verdict.verdict == "TYPE_I" or vague, verdict.explain()
    assert not any("do not tell" in note for note in verdict.notes)
