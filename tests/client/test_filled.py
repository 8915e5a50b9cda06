"""Tensors filled with a number that their own type cannot hold: it is cast, as PyTorch casts it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline

FILLED: dict[str, Callable[[], Tensor]] = {
    "full bool": lambda: torch.full((3,), 2.5, dtype=torch.bool),
    "full int64": lambda: torch.full((3,), 2.7, dtype=torch.int64),
    "full int32 below zero": lambda: torch.full((3,), -2.7, dtype=torch.int32),
    "full uint8": lambda: torch.full((3,), 200.9, dtype=torch.uint8),
    "full_like": lambda: torch.full_like(torch.zeros(3), 3.9, dtype=torch.int64),
    "new_full": lambda: torch.zeros(3).new_full((3,), 4.6, dtype=torch.int16),
    "fill_ bool": lambda: torch.zeros(3, dtype=torch.bool).fill_(0.3),
    "fill_ bool with no number": lambda: torch.zeros(3, dtype=torch.bool).fill_(float("nan")),
    "fill_ int64": lambda: torch.zeros(3, dtype=torch.int64).fill_(7.9),
    "fill_ by a tensor": lambda: torch.zeros(3, dtype=torch.int64).fill_(torch.tensor(2.7)),
    "copied": lambda: torch.zeros(3, dtype=torch.int64).copy_(torch.tensor([1.7, -1.7, 0.2])),
    "index_fill": lambda: torch.zeros(3, dtype=torch.bool).index_fill_(0, torch.tensor([1]), 0.4),
}


@pytest.mark.parametrize("name", FILLED)
@pytest.mark.parametrize("capture", ["leaves", "outputs"])
def test_the_number_is_cast(server: str, name: str, capture: str) -> None:
    fill = FILLED[name]
    numbers = fill().tolist()

    def program(off: float = 0.0) -> dict[str, Tensor]:
        return {"y": fill() * torch.tensor([1.5, 2.5, 3.5]) + off}

    verdict = plumbline.compare(program, {"y": torch.tensor(numbers) * torch.tensor([1.5, 2.5, 3.5])}, server)
    assert verdict.grade == "MATCH" and not verdict.coverage.opaque, verdict.explain()
    alone = plumbline.compare(program, None, server, capture=capture)
    assert alone.verdict == "TYPE_I" and not alone.coverage.opaque, alone.explain()
    assert plumbline.compare(lambda: program(1e-3), program, server, capture=capture).verdict == "TYPE_II"


def decoded(mask: Tensor) -> dict[str, Tensor]:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    decoder = nn.TransformerDecoder(layer, 2)
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    loss = F.mse_loss(decoder(x, memory, tgt_mask=mask), torch.randn(2, 5, 16))
    loss.backward()
    return {"loss": loss.detach(), **{f"grad:{name}": p.grad for name, p in decoder.named_parameters()}}


@pytest.mark.parametrize("capture", ["leaves", "outputs"])
def test_causal_masks_of_a_decoder(server: str, capture: str) -> None:
    """PyTorch looks at the mask, whether it is the causal one, by comparing it with one that it fills."""

    def of_numbers() -> dict[str, Tensor]:
        return decoded(nn.Transformer.generate_square_subsequent_mask(5))

    def of_words() -> dict[str, Tensor]:
        return decoded(torch.full((5, 5), 1, dtype=torch.bool).triu(1))

    def of_the_present_too() -> dict[str, Tensor]:
        return decoded(torch.full((5, 5), 1, dtype=torch.bool).triu(2))

    for target, reference in ((of_numbers, None), (of_words, None), (of_words, of_numbers)):
        verdict = plumbline.compare(target, reference, server, capture=capture)
        assert verdict.verdict == "TYPE_I" and not verdict.coverage.opaque, verdict.explain()
    assert plumbline.compare(of_the_present_too, of_numbers, server, capture=capture).verdict == "TYPE_II"
