"""Weight decay at a small learning rate: 1 - lr * decay is a number next to 1, of which fp32 holds a few digits."""

import numpy as np
import pytest
import torch
from torch import Tensor

import plumbline

RATE, DECAY = 1e-5, 0.01
WEIGHTS = torch.linspace(-1.1, 1.3, 96).reshape(8, 12)
GRADIENTS = torch.linspace(-0.7, 0.9, 96).reshape(8, 12).sin()


def decayed(factor: float) -> dict[str, Tensor]:
    return {"w": WEIGHTS * factor - GRADIENTS * RATE}


def told(server: str, factor: float) -> plumbline.Verdict:
    return plumbline.compare(lambda: decayed(factor), lambda: decayed(1 - RATE * DECAY), server)


def test_other_forms_of_one_factor_are_one(server: str) -> None:
    forms = {
        "rounded": float(np.float32(1 - RATE * DECAY)),
        "in fp32": float(np.float32(1) - np.float32(RATE) * np.float32(DECAY)),
        "of a rate in fp32": 1 - float(np.float32(RATE)) * DECAY,
        "otherwise": (1 - RATE) + RATE * (1 - DECAY),
    }
    for name, factor in forms.items():
        verdict = told(server, factor)
        assert verdict.verdict == "TYPE_I", (name, verdict.explain())
    apart = plumbline.compare(
        lambda: {"w": WEIGHTS - WEIGHTS * (RATE * DECAY) - GRADIENTS * RATE}, lambda: decayed(1 - RATE * DECAY), server
    )
    assert apart.verdict == "TYPE_I", apart.explain()


@pytest.mark.parametrize("decay", [0.005, 0.015, 0.019])
def test_another_decay_that_fp32_hardly_tells_is_no_rounding(server: str, decay: float) -> None:
    verdict = told(server, 1 - RATE * decay)
    assert verdict.verdict == "INCONCLUSIVE", verdict.explain()
    assert "a number next to 1" in verdict.message.sentence


@pytest.mark.parametrize("decay", [0, 0.03, 0.1])
def test_another_decay_is_found(server: str, decay: float) -> None:
    verdict = told(server, 1 - RATE * decay)
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "MATHEMATICS"), verdict.explain()
