"""Audits the runs of TRL's trainers. They are Hugging Face's Trainer with other losses, and take its callback.

SFTTrainer(..., callbacks=[AuditCallback("unix:///run/plumbline.sock", every=100)])
"""

from .transformers import AuditCallback

__all__ = ["AuditCallback"]
