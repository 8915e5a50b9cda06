"""The daemon on a processor that its OpenBLAS does not know: stood for by a library that says what it chose."""

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
char* openblas_get_corename(void) {
  if (getenv("OPENBLAS_CORETYPE") == NULL) return "Prescott";
  return ((char* (*)(void))dlsym(RTLD_NEXT, "openblas_get_corename"))();
}
"""


@pytest.mark.parametrize(("asked", "taken"), [(None, "Haswell"), ("Nehalem", "Nehalem")])
def test_products_of_another_age_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str | None, taken: str
) -> None:
    (tmp_path / "chosen.c").write_text(SOURCE)
    library = tmp_path / "chosen.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "chosen.c", "-ldl"], check=True)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    if asked is not None:
        monkeypatch.setenv("OPENBLAS_CORETYPE", asked)
    monkeypatch.setenv("LD_PRELOAD", os.fspath(library))
    with running() as daemon:
        assert daemon.products_for() == taken
