"""The headline figure of verdicts on whole training steps: small on healthy ones, whatever their margins; large where a
bit flipped."""

import ctypes
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from training import GPT

import plumbline

STEPS = 3


def flip(tensor: Tensor, element: int, bit: int) -> None:
    """In memory, where nothing of PyTorch sees it."""
    address = tensor.data_ptr() + element * tensor.element_size() + bit // 8
    byte = ctypes.c_uint8.from_address(address)
    byte.value ^= 1 << bit % 8


def verdicts(server: str, autocast: bool, seed: int, flipped: int | None = None) -> list[plumbline.Verdict]:
    """Of a few steps of a GPT; `flipped`: a bit of a weight flips as the last step writes it."""
    torch.manual_seed(seed)
    model = GPT()
    weight = model.blocks[0].up.weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # From leaves alone an envelope of so many roundings to bf16 says nothing.
    capture = "outputs" if autocast else "leaves"
    job = f"surprise-{capture}-{seed}-{flipped}"
    audit = plumbline.watch(model, optimizer, server, job=job, every=1, capture=capture)
    for step in range(STEPS):
        if flipped is not None and step == STEPS - 1:
            optimizer.register_step_post_hook(lambda *_: flip(weight, 37, flipped))
        tokens = torch.randint(48, (4, 17))
        with audit.step():
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                logits = model(tokens[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            audit.tap("loss", loss.detach())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        assert audit.flush(120)
    audit.close()
    assert not audit.errors()
    return audit.verdicts()


@pytest.mark.parametrize("autocast", [False, True], ids=["fp32", "bf16"])
def test_healthy_steps_are_not_surprising(server: str, autocast: bool) -> None:
    found = [verdict for seed in range(2) for verdict in verdicts(server, autocast, seed)]
    assert len(found) == 2 * STEPS
    for verdict in found:
        assert verdict.verdict == "TYPE_I", verdict.explain()
        assert 0 <= verdict.surprise < 3, verdict.explain()
        assert "surprise" in str(verdict)
        updates = [tap for name, tap in verdict.taps.items() if name.startswith("update:")]
        assert updates and all(0 <= tap.surprise < 4 for tap in updates)
    # What the largest of all roundings says: nothing.
    assert max(verdict.margin for verdict in found) > 0.9


@pytest.mark.parametrize("bit", [3, 20, 30])
@pytest.mark.parametrize("autocast", [False, True], ids=["fp32", "bf16"])
def test_a_flipped_bit_is(server: str, autocast: bool, bit: int) -> None:
    *healthy, last = verdicts(server, autocast, 0, bit)
    assert all(verdict.surprise < 3 for verdict in healthy)
    assert last.verdict == "TYPE_II" and last.surprise == math.inf, last.explain()
    assert last.taps["update:blocks.0.up.weight"].surprise == math.inf
    assert last.taps["update:blocks.1.up.weight"].surprise < 4
