"""A8. The table of formats that the command line prints, from the data that the audit rounds with, against torch's."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
PLUMB = Path(os.environ.get("PLUMBLINE_BUILD", ROOT / "build" / "release")) / "client" / "cpp" / "plumb"
DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}


def formats(*names: str) -> dict[str, dict[str, float]]:
    done = subprocess.run([PLUMB, "formats", *names, "--json"], capture_output=True, text=True, timeout=60, check=True)
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_table_is_of_all_formats() -> None:
    assert set(formats()) == {*DTYPES, "tf32"}


@pytest.mark.parametrize("name", DTYPES)
def test_figures(name: str) -> None:
    row, dtype = formats(name)[name], DTYPES[name]
    info = torch.finfo(dtype)
    assert (row["largest"], row["lowest"], row["epsilon"]) == (info.max, info.min, info.eps)
    assert (row["smallest_normal"], row["bits"], row["bytes"]) == (info.tiny, info.bits, info.bits // 8)
    assert row["unit_roundoff"] == info.eps / 2
    if name != "fp64":
        smallest = torch.tensor(row["smallest_subnormal"], dtype=torch.float64)
        assert smallest.to(dtype).double() == smallest
        assert (smallest / 2).to(dtype).double() == 0, "a tie goes to the even zero"
    infinite = torch.tensor(torch.inf).to(dtype).double()
    assert row["infinities"] == bool(infinite.isinf())
    assert row["nan"] == bool(torch.tensor(torch.nan).to(dtype).double().isnan())


def test_what_no_code_holds() -> None:
    done = subprocess.run([PLUMB, "formats", "fixed<40,40>"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "expected at most 64 bits, found 80" in done.stderr
