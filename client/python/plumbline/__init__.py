"""Plumbline tells rounding from bugs in training runs.

audit = plumbline.watch(model, optimizer, "unix:///run/plumbline.sock", job="llama-ft", every=100)
for batch in loader:
    with audit.step():
        loss = model(batch).loss; loss.backward(); optimizer.step(); optimizer.zero_grad()

print(plumbline.compare(target, reference))
"""

from .starting import starts_a_program

if not starts_a_program():
    from . import mapping, testing
    from .compare import compare
    from .credentials import Tls
    from .definition import define
    from .errors import PlumblineError, TypeIIError
    from .recorded import compile_backend
    from .schema import PERTURBING_OPS
    from .verdict import Place, TapVerdict, Verdict
    from .version import VERSION as __version__
    from .watch import Audit, watch

__all__ = [
    "PERTURBING_OPS",
    "Audit",
    "Place",
    "PlumblineError",
    "TapVerdict",
    "Tls",
    "TypeIIError",
    "Verdict",
    "__version__",
    "compare",
    "compile_backend",
    "define",
    "mapping",
    "testing",
    "watch",
]
