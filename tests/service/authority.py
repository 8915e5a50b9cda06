"""Certificates for tests, made with openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path


class Authority:
    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self.certificate, self._key = directory / f"{name}.pem", directory / f"{name}.key"
        openssl(
            "req", "-x509", *KEY, "-keyout", self._key, "-out", self.certificate, "-subj", f"/CN={name}", "-days", 2
        )

    def signs(self, name: str, host: str = "localhost", days: int = 2) -> Pair:
        """A certificate of this common name, for a host; negative days: it has expired."""
        made = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        openssl("req", *KEY, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        extensions.write_text(f"subjectAltName=DNS:{host}\n")
        signed_by = ["-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"]
        openssl(
            *("x509", "-req", "-in", request, *signed_by, "-days", days, "-out", made.certificate),
            *("-extfile", extensions),
        )
        return made
