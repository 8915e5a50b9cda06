"""PyTorch's own list of core operations: each is modelled, or there is nothing to model."""

import subprocess

import torch
from test_against_torch import CHECK

from plumbline.schema import EMPTY, RANDOM, SKIP, VIEW, OperatorInfo

# The capture tells their parts: a mask that is drawn, and a product.
CAPTURED = {"native_dropout.default"}


def core_operations() -> list[torch._ops.OpOverload]:
    packets = (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten))
    overloads = (getattr(p, name) for p in packets if hasattr(p, "overloads") for name in p.overloads())
    return [overload for overload in overloads if torch.Tag.core in overload.tags]


def test_every_core_operation_is_modelled_or_listed() -> None:
    modelled = set(subprocess.run([CHECK, "--operations"], capture_output=True, text=True, check=True).stdout.split())
    operations = [OperatorInfo(overload) for overload in core_operations()]
    assert len(operations) > 180
    # What only makes a view, draws random numbers or gives memory is the capture's; a composite is seen as its parts.
    computing = [info for info in operations if info.kind not in (VIEW, EMPTY, RANDOM, SKIP) and not info.composite]
    opaque = {info.name.removeprefix("aten::") for info in computing if info.name not in modelled}
    assert opaque == CAPTURED
    assert len(computing) >= 165
