"""The table of the kernels' resources is nvcc's own account, and a kernel that spills fails the check."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECORDER = Path(__file__).resolve().parents[3] / "kernels" / "cuda" / "resources.py"
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
SOURCE = """
__global__ void spills(const double* x, double* out) {
  double a[32];
  for (int i = 0; i < 32; ++i) a[i] = x[i];
  for (int k = 0; k < 32; ++k)
    for (int i = 0; i < 32; ++i) a[i] = a[i] * a[(i + 7) % 32] + k;
  for (int i = 0; i < 32; ++i) out[i] = a[i];
}
__global__ void fits(double* x) {
  __shared__ double y[64];
  y[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = y[63 - threadIdx.x];
}
"""


@pytest.mark.skipif(NVCC is None, reason="nvcc of CUDA was not found")
def test_a_kernel_that_spills_is_found(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    compile_it = [NVCC, "-Xptxas=-v", "-arch=sm_90", "-maxrregcount=32", "-c", "k.cu", "-o", "k.o"]
    subprocess.run([sys.executable, RECORDER, "record", "table", *compile_it], cwd=tmp_path, check=True)
    rows = [line.split("\t") for line in (tmp_path / "table" / "k.cu.tsv").read_text().splitlines()]
    kernels = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}
    assert set(kernels) == {"spills", "fits"}
    assert int(kernels["spills"]["spill_loads"]) > 0
    assert kernels["fits"]["spill_loads"] == kernels["fits"]["spill_stores"] == "0"
    assert kernels["fits"]["shared"] == str(64 * 8)
    done = subprocess.run(
        [sys.executable, RECORDER, "check", "table", "k.cu"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "spills registers: spills on sm_90" in done.stdout
    assert "spills registers: fits" not in done.stdout


def test_a_build_that_recorded_nothing_fails_the_check(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, RECORDER, "check", tmp_path, "k.cu"], capture_output=True, check=False)
    assert done.returncode == 1
