"""How a convolution adds up, told by the kernel that PyTorch chooses for it (Op.Summation of trace.proto)."""

from __future__ import annotations

from typing import Any

import torch

from .v1.trace_pb2 import Op

_NARROW = (torch.bfloat16, torch.float16)
# By operation, the place of the weight among the arguments.
CONVOLUTIONS = {"aten::convolution.default": 1, "aten::convolution_backward.default": 2}
_DEVICES = ("cpu", "cuda")  # Elsewhere one kernel, which is not PyTorch's, does them all.


def summation(name: str, args: Any) -> int:
    """Of a call of the operation `name`, under the flags of now. PyTorch's own kernels, which unfold their input and
    add up in its format, are called slow; every other one is a library's, or adds up in fp32. Wider formats:
    unspecified, since all ways are orders of one sum there."""
    weight = CONVOLUTIONS.get(name)
    if weight is None or args[weight].dtype not in _NARROW or args[weight].device.type not in _DEVICES:
        return Op.SUMMATION_UNSPECIFIED
    given = [args[weight - 1], args[weight], None if weight == 2 else args[2], *args[weight + 2 : weight + 8]]
    try:
        chosen = torch._C._select_conv_backend(*given, args[3] if weight == 2 else None)
    except (AttributeError, RuntimeError, TypeError):  # No public function; a release may change it.
        return Op.SUMMATION_UNSPECIFIED
    return Op.IN_PARTS if chosen.name.startswith("Slow") else Op.WHOLE
