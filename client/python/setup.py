"""Generates the protocol modules before they are packaged; everything else stands in pyproject.toml."""

import importlib.util
import pathlib
import re
from importlib.machinery import SourceFileLoader

from setuptools import setup

HERE = pathlib.Path(__file__).resolve().parent
GENERATED = HERE / "plumbline" / "v1" / "trace_pb2.py"


def generate() -> None:
    loader = SourceFileLoader("plumbline_generate", str(HERE / "generate"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    module.generate()


def protobuf_requirement() -> str:
    """Generated modules refuse a protobuf runtime older than the compiler that wrote them."""
    version = re.search(r"Protobuf Python Version: ([\d.]+)", GENERATED.read_text())
    return f"protobuf>={version.group(1)}" if version else "protobuf>=4.25"


if (HERE.parents[1] / "proto" / "plumbline" / "v1").is_dir():
    generate()

setup(
    install_requires=[
        "torch>=2.6",
        "numpy",
        "grpcio>=1.62",
        "googleapis-common-protos>=1.60",
        protobuf_requirement(),
    ],
)
