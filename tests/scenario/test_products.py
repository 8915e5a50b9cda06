"""The daemon on a processor that its OpenBLAS does not know or errs on: stood for by a library that says what it chose,
and multiplies wrongly with some kernels."""

import os
import subprocess
from pathlib import Path

import pytest
from private_daemon import running

# What OpenBLAS says until it is told what to take.
SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
char* openblas_get_corename(void) {
  if (getenv("OPENBLAS_CORETYPE") == NULL) return "Prescott";
  return ((char* (*)(void))dlsym(RTLD_NEXT, "openblas_get_corename"))();
}
void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double* a, int row_of_a,
                 const double* b, int row_of_b, double beta, double* c, int row_of_c) {
  __typeof__(&cblas_dgemm) multiply = dlsym(RTLD_NEXT, "cblas_dgemm");
  multiply(order, ta, tb, m, n, k, alpha, a, row_of_a, b, row_of_b, beta, c, row_of_c);
  const char *wrong = getenv("WRONG"), *taken = openblas_get_corename();
  if (wrong != NULL && strcmp(wrong, taken) == 0) c[0] += 1;
}
"""
FLAGS = next(line.split() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
WIDEST = "SkylakeX" if {f"avx512{part}" for part in ("f", "dq", "bw", "vl", "cd")} <= set(FLAGS) else "Haswell"


@pytest.mark.parametrize(
    ("asked", "wrong", "taken"),
    [
        (None, None, WIDEST),
        (None, "Prescott", "Haswell"),
        (None, "SkylakeX", "Haswell"),
        ("Nehalem", None, "Nehalem"),
        ("Nehalem", "Nehalem", "Haswell"),
    ],
)
def test_kernels_of_another_age_or_that_err_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str | None, wrong: str | None, taken: str
) -> None:
    (tmp_path / "chosen.c").write_text(SOURCE)
    library = tmp_path / "chosen.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "chosen.c", "-ldl"], check=True)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    for name, value in (("OPENBLAS_CORETYPE", asked), ("WRONG", wrong)):
        if value is not None:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("LD_PRELOAD", os.fspath(library))
    with running() as daemon:
        assert daemon.products_for() == taken
        assert Path(f"/proc/{daemon.pid}/comm").read_text() == "plumblined\n", "as whoever looks for it knows it"
