"""Every code of the narrow formats, and casts around all of their numbers and ties, against PyTorch's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
CODES = (
    Path(os.environ.get("PLUMBLINE_BUILD", ROOT / "build" / "release")) / "tests" / "unit" / "kernels" / "format_codes"
)
FORMATS = {
    "fp16": (torch.float16, torch.int16),
    "bf16": (torch.bfloat16, torch.int16),
    "e4m3": (torch.float8_e4m3fn, torch.uint8),
    "e5m2": (torch.float8_e5m2, torch.uint8),
}


def through(direction: str, name: str, data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    content = data.contiguous().view(torch.uint8).numpy().tobytes()
    done = subprocess.run([CODES, direction, name], input=content, capture_output=True, timeout=60, check=True)
    return torch.frombuffer(bytearray(done.stdout), dtype=dtype)


def all_codes(name: str) -> torch.Tensor:
    dtype, integer = FORMATS[name]
    count = 1 << (8 * dtype.itemsize)
    return torch.arange(count, dtype=torch.int64).to(torch.int32).to(integer)


@pytest.mark.parametrize("name", FORMATS)
def test_every_code(name: str) -> None:
    dtype, integer = FORMATS[name]
    codes = all_codes(name)
    decoded = through("decode", name, codes, torch.float64)
    expected = codes.view(dtype).double()
    assert torch.equal(decoded.isnan(), expected.isnan())
    numbers = ~expected.isnan()
    assert torch.equal(decoded[numbers].view(torch.int64), expected[numbers].view(torch.int64))
    again = through("encode", name, decoded, integer)
    assert torch.equal(again[numbers], codes[numbers])
    assert through("decode", name, again, torch.float64)[~numbers].isnan().all()


@pytest.mark.parametrize("name", FORMATS)
def test_casts_from_fp32(name: str) -> None:
    dtype, integer = FORMATS[name]
    numbers = all_codes(name).view(dtype).float()
    numbers = numbers[numbers.isfinite()].sort().values.unique()
    middles = (numbers[1:].double() + numbers[:-1].double()).div(2).float()
    beyond = numbers.abs().max() * torch.tensor([1.01, 1.0357, 1.04, 1.0625, 1.07, 1.12, 2.0])
    exact = torch.cat([numbers, middles, beyond, -beyond, torch.tensor([torch.inf, -torch.inf, torch.nan])])
    toward = [exact.nextafter(torch.tensor(limit)) for limit in (torch.inf, -torch.inf)]
    scattered = torch.randn(100_000, generator=torch.Generator().manual_seed(1)) * 2.0 ** torch.randint(
        -40, 20, (100_000,)
    )
    values = torch.cat([exact, *toward, scattered])
    codes = through("encode", name, values.double(), integer)
    expected = values.to(dtype)
    nan = expected.float().isnan()
    assert torch.equal(codes.view(dtype).float().isnan(), nan)
    assert torch.equal(codes[~nan], expected.view(integer)[~nan])
