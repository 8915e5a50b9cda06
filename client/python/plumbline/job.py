"""How a job introduces itself to the daemon."""

from __future__ import annotations

import torch

from .v1 import audit_pb2
from .version import VERSION


def open_request(
    project: str,
    job: str,
    run: str,
    rank: int,
    reference: str | None,
    keep_trace: bool,
    profile: str | None,
    alpha: float | None,
    golden: str | None = None,
    record_golden: str | None = None,
    budget: audit_pb2.Budget | None = None,
    ranks: int = 1,
    replicated: bool = False,
    ranks_here: tuple[int, ...] = (),
) -> audit_pb2.OpenJobRequest:
    """What a run is opened with; what is None or empty is the daemon's to choose."""
    return audit_pb2.OpenJobRequest(
        identity=audit_pb2.Identity(project=project, job=job, run=run, rank=rank),
        profile=profile or "",
        reference_run=reference or "",
        client_version=VERSION,
        framework=f"torch {torch.__version__}",
        reference=keep_trace,
        alpha=alpha,
        golden=golden or "",
        record_golden=record_golden or "",
        budget=budget,
        ranks=ranks,
        replicated=replicated,
        ranks_here=ranks_here,
    )
