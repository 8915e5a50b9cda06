"""Chooses the profile whose promises hold where a program computes (deploy/profiles of the daemon)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .calibrate import start

UNKNOWN = "unknown"  # States nothing: every figure takes its widest legal value.


@dataclass(frozen=True)
class Facts:
    """What is asked of one device and the framework's flags for it."""

    kind: str  # torch.device.type
    name: str = ""  # Of the product: "NVIDIA H100 80GB HBM3", "Ascend910B"; of a CPU its instructions: "AVX2"
    capability: tuple[int, int] | None = None  # CUDA compute capability
    rocm: bool = False
    tf32: bool = False  # Products of fp32 matrices may run in TF32.
    tf32_convolutions: bool = False  # Those of convolutions and recurrent layers may.
    reduced: bool = False  # Split sums of fp16 or bf16 products may be added in that format.
    fp16_accumulation: bool = False
    flushes: bool = False  # Of a CPU: products of bf16 elements may count what is subnormal as zero.


def profile_of(devices: Iterable[Facts]) -> str:
    """The narrowest profile that holds on all of the devices at once; what the host does beside one is no wider."""
    device_facts = list(devices)
    accelerators = [facts for facts in device_facts if facts.kind != "cpu"]
    if not accelerators:
        hosts = {_host(facts) for facts in device_facts}
        return hosts.pop() if len(hosts) == 1 else "pytorch-cpu"
    bases = {_base(facts) for facts in accelerators}
    if bases == {"cuda-sm80", "cuda-sm90"}:
        bases = {"cuda-sm80"}  # No figure of Hopper's is wider.
    base = bases.pop() if len(bases) == 1 else UNKNOWN
    if not base.startswith("cuda"):
        return base
    options = {
        "fp16-accumulation": any(facts.fp16_accumulation for facts in accelerators),
        "reduced": any(facts.reduced for facts in accelerators),
        "tf32": any(facts.tf32 for facts in accelerators),
        "tf32-convolutions": any(facts.tf32_convolutions and not facts.tf32 for facts in accelerators),
    }
    return "+".join([base, *(option for option, permitted in options.items() if permitted)])


def _host(facts: Facts) -> str:
    """By what PyTorch's kernels and oneDNN were told to use of a processor."""
    if facts.name not in ("AVX2", "AVX512"):
        return "pytorch-cpu"  # What holds of each of the others.
    return "pytorch-cpu-amx" if facts.flushes else f"pytorch-cpu-{facts.name.lower()}"


def _base(facts: Facts) -> str:
    if facts.kind == "cuda" and not facts.rocm and facts.capability is not None:
        return {8: "cuda-sm80", 9: "cuda-sm90"}.get(facts.capability[0], UNKNOWN)
    if facts.kind == "npu" and facts.name.replace(" ", "").lower().startswith("ascend910"):
        return "ascend-910"
    return UNKNOWN


def facts_of(device: torch.device) -> Facts:
    """Asks the framework."""
    if device.type == "cpu":
        return Facts("cpu", torch.backends.cpu.get_cpu_capability(), flushes=start.products_flush())
    if device.type != "cuda":
        npu: Any = getattr(torch, "npu", None) if device.type == "npu" else None
        return Facts(device.type, npu.get_device_name(device) if npu is not None else "")
    matmul = torch.backends.cuda.matmul
    return Facts(
        "cuda",
        torch.cuda.get_device_name(device),
        torch.cuda.get_device_capability(device),
        torch.version.hip is not None,
        *_tf32(),
        bool(matmul.allow_fp16_reduced_precision_reduction or matmul.allow_bf16_reduced_precision_reduction),
        bool(getattr(matmul, "allow_fp16_accumulation", False)),
    )


def _tf32() -> tuple[bool, bool]:
    """Of products of matrices; of convolutions and recurrent layers, whose default it is."""
    cudnn = torch.backends.cudnn
    holders: list[Any] = [torch.backends.cuda.matmul, getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)]
    if all(hasattr(holder, "fp32_precision") for holder in holders):
        general = str(getattr(torch.backends, "fp32_precision", "none"))
        chosen = [str(holder.fp32_precision) for holder in holders]
        matrices, *others = [(general if choice == "none" else choice) == "tf32" for choice in chosen]
        return matrices, any(others)
    return bool(torch.backends.cuda.matmul.allow_tf32), bool(cudnn.allow_tf32)


def settings() -> tuple[object, ...]:
    """What a program may set of its arithmetic at any time, as it is in this thread: a profile holds for these."""
    matmul = torch.backends.cuda.matmul
    return (
        _SMALLEST_NORMAL / 2 == 0,  # torch.set_flush_denormal, which goes for all arithmetic of the thread.
        *start.fp32_precisions(),
        torch._C._get_mkldnn_enabled(),
        *_tf32(),
        matmul.allow_fp16_reduced_precision_reduction,
        matmul.allow_bf16_reduced_precision_reduction,
        getattr(matmul, "allow_fp16_accumulation", False),
    )


_SMALLEST_NORMAL = sys.float_info.min


def device_profile(devices: Iterable[torch.device]) -> str:
    """The profile of the devices that tensors live on; of a processor alone, with what it was found to do beyond."""
    used = set(devices) or {torch.device("cpu")}
    name = profile_of(facts_of(device) for device in used)
    return start.widened(name) if all(device.type == "cpu" for device in used) else name
