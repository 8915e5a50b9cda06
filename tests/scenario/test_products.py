"""The daemon on a processor that its OpenBLAS does not know: stood for by a library that says what it chose."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from private_daemon import START_S_MAX, running

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
        log = Path(daemon.address.removeprefix("unix://")).with_name("log")
        deadline = time.monotonic() + START_S_MAX  # It listens a little earlier than it says so.
        while not (found := re.search(r"products by OpenBLAS for (\w+);", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
    assert found.group(1) == taken
