"""Generates the protocol modules before they are packaged; everything else stands in pyproject.toml."""

import importlib.util
import pathlib
import re
from importlib.machinery import SourceFileLoader

from setuptools import setup

HERE = pathlib.Path(__file__).resolve().parent
GENERATED = HERE / "plumbline" / "v1"


def generate() -> None:
    loader = SourceFileLoader("plumbline_generate", str(HERE / "generate"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    module.generate()


def protobuf_requirement() -> str:
    """Generated modules refuse a protobuf runtime older than the compiler that wrote them, and one that is two major
    versions newer (https://protobuf.dev/support/cross-version-runtime-guarantee)."""
    version = re.search(r"Protobuf Python Version: (\d+)([\d.]+)", (GENERATED / "trace_pb2.py").read_text())
    return f"protobuf>={version[1]}{version[2]},<{int(version[1]) + 2}" if version else "protobuf>=4.25,<6"


def grpc_requirement() -> str:
    """They refuse a grpcio older than their compiler too, which older compilers do not say."""
    version = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", (GENERATED / "audit_pb2_grpc.py").read_text())
    return f"grpcio>={version[1]}" if version else "grpcio>=1.62"


if (HERE.parents[1] / "proto" / "plumbline" / "v1").is_dir():
    generate()

VERSION = re.search(r'^VERSION = "(.*)"$', (HERE / "plumbline" / "version.py").read_text(), re.M)

setup(
    # The daemon and the command plumb as a wheel of the same version: pip install plumbline[daemon].
    # What `python -m plumbline export-verdicts` writes with.
    extras_require={"daemon": [f"plumbline-daemon=={VERSION[1]}"], "parquet": ["pyarrow>=14"]},
    install_requires=[
        "torch>=2.6",
        "numpy",
        grpc_requirement(),
        "googleapis-common-protos>=1.60",
        protobuf_requirement(),
    ],
)
