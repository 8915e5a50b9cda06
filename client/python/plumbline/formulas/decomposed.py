"""Operations whose formula is PyTorch's own decomposition (torch._decomp). The tables are not taken on trust, as some
entries compute otherwise than their operations: one stands here once a test has compared the two in fp64
(tests/client/test_formulas.py). Where they disagree in a step, it is found at the operation, as with any formula."""

from __future__ import annotations

import torch
from torch._decomp import decomposition_table

from .register import of

_NAMES = (
    "_addmm_activation.default",
    "_batch_norm_no_update.default",
    "_batch_norm_with_update_functional.default",
    "_fused_rms_norm_backward.default",
    "_native_batch_norm_legit_functional.default",
    "hann_window.default",
    "hann_window.periodic",
)

for _name in _NAMES:
    _base, _, _overload = _name.partition(".")
    _decomposition = decomposition_table.get(getattr(getattr(torch.ops.aten, _base, None), _overload, None))
    if _decomposition is not None:
        of(_name)(_decomposition)
