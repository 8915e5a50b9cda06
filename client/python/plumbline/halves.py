"""Results in 16 bits are observed while there is room for them: bounds of their roundings, carried through a whole
step, would leave elements open."""

from __future__ import annotations

import torch

from .schema import DTYPES

_HALF = frozenset((DTYPES[torch.float16], DTYPES[torch.bfloat16]))


class Halves:
    """What one step observes of them, in bytes."""

    def __init__(self) -> None:
        self.room = 0  # Left.
        self.bytes = 0  # Taken.

    def take(self, code: int, tensor: torch.Tensor) -> bool:
        """Whether a result of this DType is observed."""
        if self.room <= 0 or code not in _HALF:
            return False
        self.room -= tensor.nbytes
        self.bytes += tensor.nbytes
        return True
