"""Operations of PyTorch that the daemon has no lowering for, as formulas of operations that it has. A call of one is
written down as its formula (defined.py), and so audited against its mathematics, as a user's definition is.

Formulas run on tensors without content: they know shapes and numbers, and never what tensors hold. A file a family.
"""

from . import decomposed, fused, images, losses, ordered, parts, pools, recurrent, reflections, samples, series, written  # noqa: F401 Each registers its formulas.
from .register import formulas as formulas
